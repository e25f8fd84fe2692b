/*
 * A remote that is an HTTP server: ADDRESS/blobs/sha256/HEX by range requests. Called by remote.c,
 * and by libcurl while the loop drives it.
 *
 * Must hold: bytes go to a buffer only while its read is this flight's, and no more than it has
 * room for, and only of an answer that counts (remote_answer.c).
 */
#include <curl/curl.h>
#include <errno.h>
#include <openssl/x509_vfy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "engine/config.h"
#include "engine/serve/remote_answer.h"
#include "engine/serve/remote_class.h"
#include "engine/serve/remote_curl.h"
#include "engine/serve/remote_headers.h"
#include "engine/shard.h"

enum {
	WHOLE_BYTES_MAX = REMOTE_BYTES_MAX, /* read of a server that does not know ranges */
	WORDS_BYTES_MAX = 16 << 10,	    /* of a refusal: for the connection's sake */
};

struct flight {
	struct http *http;
	CURL *easy;		  /* kept, with its connection */
	struct remote_read *read; /* NULL: a free one */
	uint32_t got, promised;
	uint32_t skipped, words_bytes;
	uint32_t head_bytes;
	bool is_judged, is_enough;
	bool is_past; /* the server says that the blob has ended before */
	int error;
};

struct http {
	struct remote remote;
	struct remote_curl curl;
	struct curl_slist *headers;
	X509_STORE *authorities; /* NULL: no TLS */
	struct flight flights[REMOTE_FLIGHTS];
	char address[]; /* without a slash at its end */
};

/* ---- answers ---- */

/* What was asked for, and less only if it is the blob's end. */
static int range_judge(struct flight *flight)
{
	const struct remote_read *read = flight->read;
	uint64_t promised, size;
	int r = answer_range(flight->easy, read->offset, read->bytes, &promised, &size);

	if (r < 0)
		return r;
	flight->promised = (uint32_t)promised; /* at most what was asked for */
	return 0;
}

/* Once per answer: when its body begins, or at its end. */
static void answer_judge(struct flight *flight)
{
	const struct remote_read *read = flight->read;
	long status = 0;

	flight->is_judged = true;
	(void)curl_easy_getinfo(flight->easy, CURLINFO_RESPONSE_CODE, &status);
	if (status / 100 == 2 && answer_is_encoded(flight->easy)) {
		flight->error = -EIO;
	} else if (status == 206) {
		flight->error = range_judge(flight);
	} else if (status == 200) {
		/* All of it comes: so much of a small blob is bearable. */
		if (read->offset + read->bytes > WHOLE_BYTES_MAX)
			flight->error = -EOPNOTSUPP;
	} else if (status == 416) {
		flight->is_past = true;
	} else {
		flight->error = answer_status_error(status);
	}
}

/* Of a refusal: read on for a while, so that the connection can be used again. */
static size_t words_take(struct flight *flight, size_t bytes)
{
	if (bytes > WORDS_BYTES_MAX - flight->words_bytes)
		return 0;
	flight->words_bytes += (uint32_t)bytes;
	return bytes;
}

/* libcurl's, which keeps all of it for as long as the answer lasts. */
static size_t head_came(char *bytes, size_t one, size_t count, void *owner)
{
	struct flight *flight = owner;

	(void)bytes;
	if (count * one > ANSWER_HEAD_BYTES_MAX - flight->head_bytes)
		return 0;
	flight->head_bytes += (uint32_t)count;
	return count;
}

/* libcurl's: what is less than it gave ends the transfer. */
static size_t body_came(char *bytes, size_t one, size_t count, void *owner)
{
	struct flight *flight = owner;
	struct remote_read *read = flight->read;
	size_t skip, taken;

	if (!flight->is_judged)
		answer_judge(flight);
	if (flight->error || flight->is_past)
		return words_take(flight, count * one);
	skip = flight->promised ? 0 : (size_t)read->offset - flight->skipped;
	if (skip > count)
		skip = count;
	flight->skipped += (uint32_t)skip;
	taken = read->bytes - flight->got;
	if (taken > count - skip)
		taken = count - skip;
	memcpy((char *)read->buffer + flight->got, bytes + skip, taken);
	flight->got += (uint32_t)taken;
	if (flight->promised && skip + taken < count)
		flight->error = -EIO; /* more than it had promised */
	flight->is_enough = !flight->promised && flight->got == read->bytes;
	return flight->is_enough || flight->error ? 0 : count;
}

static int flight_result(struct flight *flight, CURLcode code)
{
	if (flight->error)
		return flight->error;
	if (flight->is_enough)
		return (int)flight->got;
	if (code)
		return answer_code_error(code);
	if (!flight->is_judged)
		answer_judge(flight);
	if (flight->error)
		return flight->error;
	if (flight->promised && flight->got != flight->promised)
		return -EIO;
	return (int)flight->got;
}

static void flight_ended(struct remote_curl *curl, CURL *easy, CURLcode code)
{
	struct http *http = container_of(curl, struct http, curl);
	struct flight *flight = http->flights;
	struct remote_read *read;
	int result;

	while (flight->easy != easy)
		flight++;
	read = flight->read;
	result = flight_result(flight, code);
	flight->read = NULL;
	remote_end(&http->remote, read, result);
	remote_next(&http->remote);
}

/* ---- asking ---- */

static int easy_make(struct http *http, struct flight *flight)
{
	CURL *easy;
	int r = answer_easy_new(http->headers, http->authorities, &easy);

	if (r < 0)
		return r;
	if (curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, head_came) ||
	    curl_easy_setopt(easy, CURLOPT_HEADERDATA, flight) ||
	    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, body_came) ||
	    curl_easy_setopt(easy, CURLOPT_WRITEDATA, flight)) {
		curl_easy_cleanup(easy);
		return -ENOTSUP;
	}
	flight->easy = easy;
	return 0;
}

static struct http *http_of(struct remote *remote)
{
	return container_of(remote, struct http, remote);
}

static int http_start(struct remote *remote, struct remote_read *read)
{
	struct http *http = http_of(remote);
	struct flight *flight = http->flights;
	char url[ANSWER_ADDRESS_BYTES_MAX + 128], hex[DIGEST_HEX_BYTES], range[64];
	int r = 0;

	if (read->offset > (uint64_t)INT64_MAX - read->bytes)
		return -EINVAL;
	while (flight < http->flights + REMOTE_FLIGHTS && flight->read)
		flight++;
	if (flight == http->flights + REMOTE_FLIGHTS)
		return -EAGAIN;
	if (!flight->easy)
		r = easy_make(http, flight);
	if (r < 0)
		return r;
	*flight = (struct flight){ .http = http, .easy = flight->easy, .read = read };
	digest_hex(read->blob, hex);
	(void)snprintf(url, sizeof url, "%s/blobs/sha256/%s", http->address, hex);
	(void)snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)read->offset,
		       (unsigned long long)(read->offset + read->bytes - 1));
	if (curl_easy_setopt(flight->easy, CURLOPT_URL, url) ||
	    curl_easy_setopt(flight->easy, CURLOPT_RANGE, range) ||
	    curl_multi_add_handle(http->curl.multi, flight->easy)) {
		flight->read = NULL;
		return -ENOMEM;
	}
	read->flight = flight;
	return 0;
}

static void http_drop(struct remote *remote, struct remote_read *read)
{
	struct flight *flight = read->flight;

	(void)curl_multi_remove_handle(http_of(remote)->curl.multi, flight->easy); /* is in it */
	flight->read = NULL;
}

/* ---- as a remote ---- */

static int url_check(CURLU *url, const char *where, const char **ret_why)
{
	static const struct {
		CURLUPart part;
		const char *why;
	} unwanted[] = {
		{ CURLUPART_USER, "it holds a user: credentials belong in --remote-header-file" },
		{ CURLUPART_PASSWORD, "it holds a password: see --remote-header-file" },
		{ CURLUPART_QUERY, "it has a query" },
		{ CURLUPART_FRAGMENT, "it has a fragment" },
	};
	char *text;

	if ((strncmp(where, "http://", 7) != 0 && strncmp(where, "https://", 8) != 0) ||
	    curl_url_set(url, CURLUPART_URL, where, 0)) {
		*ret_why = "it is no address of HTTP";
		return -EINVAL;
	}
	for (size_t i = 0; i < sizeof unwanted / sizeof *unwanted; i++) {
		if (curl_url_get(url, unwanted[i].part, &text, 0))
			continue;
		curl_free(text);
		*ret_why = unwanted[i].why;
		return -EINVAL;
	}
	return 0;
}

static int http_check(const char *where, const char **ret_why)
{
	CURLU *url;
	int r;

	if (strlen(where) >= ANSWER_ADDRESS_BYTES_MAX) {
		*ret_why = "it is longer than 1023 bytes";
		return -EINVAL;
	}
	url = curl_url();
	if (!url) {
		*ret_why = "no memory";
		return -EINVAL;
	}
	r = url_check(url, where, ret_why);
	curl_url_cleanup(url);
	return r;
}

static void http_close(struct remote *remote)
{
	struct http *http = http_of(remote);

	for (struct flight *f = http->flights; f < http->flights + REMOTE_FLIGHTS; f++)
		curl_easy_cleanup(f->easy);
	remote_curl_close(&http->curl);
	curl_slist_free_all(http->headers);
	X509_STORE_free(http->authorities);
	free(http);
}

static int http_prepare(struct http *http)
{
	const struct config *config = http->remote.shard->config;
	int r = remote_headers_read(config->remote_header_path, &http->headers);

	if (r < 0 || strncmp(http->address, "https:", 6) != 0)
		return r;
	answer_tls_prepare(); /* not while the shard serves */
	return remote_authorities_read(config->remote_ca_path, &http->authorities);
}

static int http_open(const char *where, struct shard *shard, struct remote **ret)
{
	size_t bytes = strlen(where);
	struct http *http;
	int r;

	while (bytes && where[bytes - 1] == '/')
		bytes--;
	http = calloc(1, sizeof *http + bytes + 1);
	if (!http)
		return -ENOMEM;
	remote_init(&http->remote, &remote_http, shard);
	memcpy(http->address, where, bytes);
	http->curl = (struct remote_curl){
		.io = shard->io,
		.timers = &shard->timers,
		.ended = flight_ended,
	};
	r = remote_curl_open(&http->curl);
	if (r < 0) {
		free(http);
		return r;
	}
	r = http_prepare(http);
	if (r < 0) {
		http_close(&http->remote);
		return r;
	}
	*ret = &http->remote;
	return 0;
}

const struct remote_class remote_http = {
	.scheme = "http",
	.keeps_scheme = true,
	.check = http_check,
	.open = http_open,
	.start = http_start,
	.drop = http_drop,
	.close = http_close,
};
