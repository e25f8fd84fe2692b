/*
 * Files of an HTTP remote: headers with credentials, and certificates of authorities. Called when a
 * remote is opened. Must hold: what is sent to a server is whole lines of a file that only its
 * owner reads, and no file leads to a server that anybody vouched for.
 */
#include "engine/serve/remote_headers.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/x509_vfy.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/cleanup.h"
#include "engine/base/log.h"

/* Where Debian has those of its package ca-certificates. */
#define HOST_AUTHORITIES "/etc/ssl/certs/ca-certificates.crt"

enum { HEADERS_BYTES_MAX = 32 << 10, HEADERS_MAX = 64 };

static int text_read(const char *path, char *ret, size_t bytes_max)
{
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0) {
		log_error("--remote-header-file cannot be read path=\"%s\" err=%s", path,
			  strerror(errno));
		return -EACCES;
	}
	if (!S_ISREG(st.st_mode) || st.st_mode & 077) {
		log_error("--remote-header-file must be a file with mode 0600 path=\"%s\"", path);
		return -EPERM;
	}
	n = read(fd, ret, bytes_max);
	if (n < 0 || (size_t)n == bytes_max || memchr(ret, 0, (size_t)n)) {
		log_error("--remote-header-file must be text of less than %zu bytes path=\"%s\"",
			  bytes_max, path);
		return -EINVAL;
	}
	ret[n] = 0;
	return 0;
}

/* A name, a colon, a value: nothing that libcurl takes for a wish of another kind. */
static bool header_is_sound(const char *line)
{
	const size_t name = strspn(line, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
					 "0123456789-_");
	const char *value = line + name + 1;

	if (!name || line[name] != ':')
		return false;
	while (*value == ' ' || *value == '\t')
		value++;
	for (const char *at = value; *at; at++)
		if ((unsigned char)*at < ' ' && *at != '\t')
			return false;
	return *value;
}

int remote_headers_read(const char *path, struct curl_slist **ret)
{
	struct curl_slist *headers = NULL, *more;
	auto_free char *text = malloc(HEADERS_BYTES_MAX);
	char *line, *rest = text;
	unsigned count = 0;
	int r = text ? 0 : -ENOMEM;

	if (r < 0)
		return r;
	*text = 0;
	if (path)
		r = text_read(path, text, HEADERS_BYTES_MAX);
	while (r >= 0 && (line = strsep(&rest, "\n"))) {
		const size_t bytes = strlen(line);

		if (bytes && line[bytes - 1] == '\r')
			line[bytes - 1] = 0;
		if (!*line)
			continue;
		count++;
		if (count > HEADERS_MAX || !header_is_sound(line)) {
			/* Not what it says: that is a credential. */
			log_error("--remote-header-file wants lines of \"Name: value\", at most "
				  "%d path=\"%s\" header=%u",
				  HEADERS_MAX, path, count);
			r = -EINVAL;
			break;
		}
		more = curl_slist_append(headers, line);
		if (!more)
			r = -ENOMEM;
		else
			headers = more;
	}
	explicit_bzero(text, HEADERS_BYTES_MAX);
	if (r < 0)
		curl_slist_free_all(headers);
	else
		*ret = headers;
	return r < 0 ? r : 0;
}

int remote_authorities_read(const char *path, X509_STORE **ret)
{
	X509_STORE *store = X509_STORE_new();

	if (!store)
		return -ENOMEM;
	if (X509_STORE_load_file(store, path ? path : HOST_AUTHORITIES) == 1) {
		*ret = store;
		return 0;
	}
	ERR_clear_error();
	X509_STORE_free(store);
	log_error("no certificates of authorities path=\"%s\": install ca-certificates, or see "
		  "--remote-ca-file",
		  path ? path : HOST_AUTHORITIES);
	return -ENOENT;
}
