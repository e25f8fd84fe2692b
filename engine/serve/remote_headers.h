/* What an HTTP remote is asked with, and whom it is believed: from files, read once. */
#pragma once

#include <curl/curl.h>
#include <openssl/types.h>

/*
 * "Name: value" lines of a file of mode 0600 that holds credentials; NULL: none. On failure one
 * line in the log says why.
 */
int remote_headers_read(const char *path, struct curl_slist **ret);
/* Certificates of who may sign a server's; NULL: those of the host. The same on failure. */
int remote_authorities_read(const char *path, X509_STORE **ret);
