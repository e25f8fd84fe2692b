/*
 * Reading a server for dsec-fetch. Called by fetch.c, and by libcurl from within. Must hold: what
 * goes to piece() is in order and no more than was asked for; nothing waits beyond its bound of
 * time; what fails for a while is asked for again, a few times.
 */
#include "engine/serve/fetch_http.h"

#include <errno.h>
#include <netdb.h>
#include <openssl/x509_vfy.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "engine/base/cleanup.h"
#include "engine/serve/remote_headers.h"

enum {
	ATTEMPTS_MAX = 6, /* in a row that bring nothing */
	BACKOFF_MS = 100,
	WORDS_BYTES_MAX = 16 << 10, /* of a refusal */
	ADDRESSES_MAX = 8,	    /* of a server's name */
	NAMES_BYTES_MAX = 1024,
};

/* One answer in the making: of several attempts. */
struct get {
	struct fetch_http *http;
	const struct fetch_ask *ask;
	uint64_t offset, total; /* total 0: not known yet */
	char *piece;		/* owned */
	uint32_t used;
	uint64_t begun_ns; /* of this piece */
	/* of an attempt */
	uint64_t promised, got;
	uint32_t head_bytes, words_bytes;
	bool is_judged, is_over; /* over: no attempt helps */
	int error;
	char why[FETCH_WHY_BYTES];
	char words[CURL_ERROR_SIZE]; /* libcurl's: it names what is wrong with a certificate */
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void get_fail(struct get *get, int error, const char *why)
{
	get->error = error;
	get->is_over = true;
	(void)snprintf(get->why, sizeof get->why, "%s", why);
}

/* In so many milliseconds. */
static bool is_late(const struct get *get, uint64_t ms)
{
	return now_ns() - get->begun_ns + ms * 1000000 > get->http->timeout_s * 1000000000ull;
}

/* ---- what comes ---- */

static void size_judge(struct get *get, uint64_t size)
{
	const bool is_index = get->ask->what == FETCH_INDEX;

	if (is_index ? size > get->ask->bytes : size != get->ask->bytes)
		get_fail(get, is_index ? -EFBIG : -EBADMSG,
			 is_index ? "index.json: over 4 MiB" :
				    "the server has it of another size than its descriptor says");
	else if (get->total && get->total != size)
		get_fail(get, -EBADMSG, "the server has it of another size now");
	else
		get->total = size;
}

static void whole_judge(struct get *get)
{
	curl_off_t bytes = -1;

	(void)curl_easy_getinfo(get->http->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &bytes);
	if (get->offset)
		get_fail(get, -EOPNOTSUPP,
			 "the connection was cut, and the server knows no ranges");
	else if (bytes < 0)
		get_fail(get, -EOPNOTSUPP, "the server does not say how much it sends");
	else
		size_judge(get, (uint64_t)bytes);
	get->promised = get->total;
}

static void status_judge(struct get *get, long status)
{
	const char *what = status / 100 == 3 ? ": a redirect, which is not followed" :
			   status == 404     ? ": it is not there" :
					       "";

	get->error = answer_status_error(status);
	get->is_over = status != 429 && status < 500;
	(void)snprintf(get->why, sizeof get->why, "the server answered %ld%s", status, what);
}

/* Once per attempt: when its body begins, or at its end. */
static void answer_judge(struct get *get)
{
	uint64_t size = 0;
	long status = 0;

	get->is_judged = true;
	(void)curl_easy_getinfo(get->http->easy, CURLINFO_RESPONSE_CODE, &status);
	if (status / 100 == 2 && answer_is_encoded(get->http->easy)) {
		get_fail(get, -EIO, "the server sends it in an encoding that was not asked for");
	} else if (status == 206) {
		if (answer_range(get->http->easy, get->offset, get->ask->bytes - get->offset,
				 &get->promised, &size) < 0)
			get_fail(get, -EIO, "the server sends another range than was asked for");
		else
			size_judge(get, size);
	} else if (status == 200) {
		whole_judge(get);
	} else if (status == 416) {
		get_fail(get, -EBADMSG, "the server has less of it than its descriptor says");
	} else {
		status_judge(get, status);
	}
}

static int piece_give(struct get *get)
{
	int r;

	if (!get->used)
		return 0;
	r = get->http->piece(get->http->owner, get->piece, get->used, get->total);
	if (r < 0)
		get_fail(get, r, "dsec-store has ended");
	get->used = 0;
	get->begun_ns = now_ns(); /* who takes it may be slow */
	return r;
}

static size_t head_came(char *bytes, size_t one, size_t count, void *owner)
{
	struct get *get = owner;

	(void)bytes;
	if (count * one > ANSWER_HEAD_BYTES_MAX - get->head_bytes) {
		get_fail(get, -EIO, "headers without end");
		return 0;
	}
	get->head_bytes += (uint32_t)count;
	return count;
}

/* libcurl's: what is less than it gave ends the transfer. */
static size_t body_came(char *bytes, size_t one, size_t count, void *owner)
{
	struct get *get = owner;
	size_t left = count * one;

	if (!get->is_judged)
		answer_judge(get);
	if (get->error) {
		get->words_bytes += left < WORDS_BYTES_MAX ? (uint32_t)left : WORDS_BYTES_MAX;
		return get->words_bytes < WORDS_BYTES_MAX ? count : 0;
	}
	if (left > get->promised - get->got) {
		get_fail(get, -EIO, "the server sends more than it promised");
		return 0;
	}
	while (left) {
		const size_t room = FETCH_PIECE_BYTES - get->used;
		const size_t taken = left < room ? left : room;

		memcpy(get->piece + get->used, bytes, taken);
		get->used += (uint32_t)taken;
		get->got += taken;
		get->offset += taken;
		bytes += taken;
		left -= taken;
		if (get->used == FETCH_PIECE_BYTES && piece_give(get) < 0)
			return 0;
	}
	return count;
}

/* libcurl's, at least once a second: not 0 ends the transfer. */
static int time_passed(void *owner, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
	struct get *get = owner;

	(void)a, (void)b, (void)c, (void)d;
	if (!is_late(get, 0))
		return 0;
	get_fail(get, -ETIMEDOUT, "it did not come in time: see dsecd --remote-timeout");
	return 1;
}

/* ---- asking ---- */

static int attempt_begin(struct get *get)
{
	CURL *easy = get->http->easy;
	char url[ANSWER_ADDRESS_BYTES_MAX + 128], hex[DIGEST_HEX_BYTES], range[64];

	digest_hex(get->ask->digest, hex);
	if (get->ask->what == FETCH_INDEX)
		(void)snprintf(url, sizeof url, "%s/index.json", get->http->address);
	else
		(void)snprintf(url, sizeof url, "%s/blobs/sha256/%s", get->http->address, hex);
	(void)snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)get->offset,
		       (unsigned long long)(get->ask->bytes - 1));
	get->promised = get->got = 0;
	get->head_bytes = get->words_bytes = 0;
	get->is_judged = false;
	get->error = 0;
	*get->words = 0;
	return curl_easy_setopt(easy, CURLOPT_URL, url) ||
			       curl_easy_setopt(easy, CURLOPT_RANGE, range) ||
			       curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, head_came) ||
			       curl_easy_setopt(easy, CURLOPT_HEADERDATA, get) ||
			       curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, body_came) ||
			       curl_easy_setopt(easy, CURLOPT_WRITEDATA, get) ||
			       curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, time_passed) ||
			       curl_easy_setopt(easy, CURLOPT_XFERINFODATA, get) ||
			       curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, get->words) ||
			       curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0L) ?
		       -ENOMEM :
		       0;
}

/* 0: all of it is here. */
static int attempt(struct get *get)
{
	CURLcode code;
	int r = attempt_begin(get);

	if (r < 0) {
		get_fail(get, r, "no memory");
		return r;
	}
	code = curl_easy_perform(get->http->easy);
	if (!code && !get->is_judged)
		answer_judge(get);
	if (get->error)
		return get->error;
	if (!code && get->offset == get->total)
		return piece_give(get);
	get->error = code ? answer_code_error(code) : -ECONNRESET;
	get->is_over = get->error == -EKEYREJECTED;
	(void)snprintf(get->why, sizeof get->why, "%.79s",
		       !code	   ? "the connection was cut" :
		       *get->words ? get->words :
				     curl_easy_strerror(code));
	return get->error;
}

int fetch_http_get(struct fetch_http *http, const struct fetch_ask *ask,
		   char ret_why[FETCH_WHY_BYTES])
{
	struct get get = {
		.http = http,
		.ask = ask,
		.piece = malloc(FETCH_PIECE_BYTES),
		.begun_ns = now_ns(),
	};
	uint64_t was = 0;
	int r = 0;

	if (!ask->bytes)
		return 0; /* nothing is all of it */
	if (!get.piece)
		get_fail(&get, r = -ENOMEM, "no memory");
	for (unsigned tries = 0; !get.is_over; tries++) {
		r = attempt(&get);
		if (r >= 0)
			break;
		tries = get.offset > was ? 0 : tries;
		was = get.offset;
		if (tries + 1 >= ATTEMPTS_MAX || is_late(&get, BACKOFF_MS << tries))
			break;
		if (!get.is_over)
			(void)poll(NULL, 0, BACKOFF_MS << tries); /* a pause */
	}
	free(get.piece);
	(void)curl_easy_setopt(http->easy, CURLOPT_ERRORBUFFER, NULL); /* it is of this answer */
	(void)snprintf(ret_why, FETCH_WHY_BYTES, "%s", get.why);
	return r;
}

/* ---- before it is confined ---- */

/* "HOST:PORT:ADDRESS,..." as libcurl takes it. */
static int names_add(struct fetch_http *http, const char *host, const char *port,
		     const struct addrinfo *found)
{
	char text[NAMES_BYTES_MAX], address[64];
	int used = snprintf(text, sizeof text, "%s:%s:", host, port);

	for (int count = 0; found && count < ADDRESSES_MAX; count++, found = found->ai_next) {
		if (used >= (int)sizeof text ||
		    getnameinfo(found->ai_addr, found->ai_addrlen, address, sizeof address, NULL, 0,
				NI_NUMERICHOST))
			return -EHOSTUNREACH;
		used += snprintf(text + used, sizeof text - (size_t)used,
				 found->ai_family == AF_INET6 ? "%s[%s]" : "%s%s", count ? "," : "",
				 address);
	}
	if (used >= (int)sizeof text)
		return -EHOSTUNREACH;
	http->names = curl_slist_append(NULL, text);
	return http->names ? 0 : -ENOMEM;
}

static int name_find(struct fetch_http *http, CURLU *url)
{
	const struct addrinfo wanted = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *found = NULL;
	char *host = NULL, *port = NULL;
	int r = 0;

	if (curl_url_set(url, CURLUPART_URL, http->address, 0) ||
	    curl_url_get(url, CURLUPART_HOST, &host, 0) ||
	    curl_url_get(url, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT))
		r = -EINVAL;
	if (r >= 0 && *host != '[') {
		r = getaddrinfo(host, port, &wanted, &found) ? -EHOSTUNREACH :
							       names_add(http, host, port, found);
		if (found)
			freeaddrinfo(found);
	}
	curl_free(host);
	curl_free(port);
	return r;
}

int fetch_http_open(struct fetch_http *http, const char *headers_path, const char *authorities_path,
		    const char **ret_why)
{
	CURLU *url;
	int r;

	*ret_why = "no memory";
	if (curl_global_init(CURL_GLOBAL_DEFAULT))
		return -ENOMEM;
	*ret_why = "--remote-header-file: see the log";
	r = remote_headers_read(*headers_path ? headers_path : NULL, &http->headers);
	if (r < 0)
		return r;
	if (!strncmp(http->address, "https:", 6)) {
		answer_tls_prepare();
		*ret_why = "--remote-ca-file: see the log";
		r = remote_authorities_read(*authorities_path ? authorities_path : NULL,
					    &http->authorities);
		if (r < 0)
			return r;
	}
	*ret_why = "the server's name is not known";
	url = curl_url();
	r = url ? name_find(http, url) : -ENOMEM;
	curl_url_cleanup(url);
	if (r < 0)
		return r;
	*ret_why = "this libcurl cannot ask";
	r = answer_easy_new(http->headers, http->authorities, &http->easy);
	if (r >= 0 && http->names && curl_easy_setopt(http->easy, CURLOPT_RESOLVE, http->names))
		r = -ENOMEM;
	return r;
}

void fetch_http_close(struct fetch_http *http)
{
	curl_easy_cleanup(http->easy);
	curl_slist_free_all(http->headers);
	curl_slist_free_all(http->names);
	X509_STORE_free(http->authorities);
}
