/* Blobs of an image layout on a server, whole and in order. dsec-fetch's. */
#pragma once

#include <curl/curl.h>
#include <openssl/types.h>
#include <stdint.h>

#include "backends/store/fetch.h"
#include "engine/serve/remote_answer.h"

struct fetch_http {
	char address[ANSWER_ADDRESS_BYTES_MAX]; /* without a slash at its end */
	uint32_t timeout_s;
	CURL *easy;
	struct curl_slist *headers, *names;
	X509_STORE *authorities; /* NULL: no TLS */
	void *owner;
	/* A piece of what was asked for: its error ends all. */
	int (*piece)(void *owner, const void *bytes, uint32_t count, uint64_t total);
};

/*
 * Files are read and the server's name is looked up: what needs more than a network. address,
 * timeout_s, owner and piece stand. `ret_why`: static. fetch_http_close() in any case.
 */
int fetch_http_open(struct fetch_http *http, const char *headers_path, const char *authorities_path,
		    const char **ret_why);
void fetch_http_close(struct fetch_http *http);
/*
 * All of it goes to piece(), or an error and `ret_why`, at most FETCH_WHY_BYTES, is returned. A
 * connection that is cut is made again, and goes on where it was; each FETCH_PIECE_BYTES come
 * within timeout_s, or it is -ETIMEDOUT.
 */
int fetch_http_get(struct fetch_http *http, const struct fetch_ask *ask,
		   char ret_why[FETCH_WHY_BYTES]);
