/* What dsec-fetch asks a server for: against one that lies, on loopback. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/serve/fetch_http.h"
#include "tests/slowness.h"
#include "tests/unit/remote_loop.h"
#include "tests/unit/remote_server.h"

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

struct visit {
	struct server *server;
	struct fetch_http http;
	uint8_t *got;
	uint64_t bytes;
	int piece_error;
	char why[FETCH_WHY_BYTES];
};

/* No more than was asked for, and a size that does not change. */
static int piece_take(void *owner, const void *bytes, uint32_t count, uint64_t total)
{
	struct visit *visit = owner;

	cr_assert_gt(count, 0);
	cr_assert_leq(count, FETCH_PIECE_BYTES);
	cr_assert_leq(visit->bytes + count, total);
	cr_assert_leq(total, SERVER_BLOB_BYTES);
	memcpy(visit->got + visit->bytes, bytes, count);
	visit->bytes += count;
	return visit->piece_error;
}

static struct visit *visit_new(uint32_t timeout_s)
{
	struct visit *visit = calloc(1, sizeof *visit);
	const char *why;

	cr_assert(visit);
	visit->server = server_new();
	visit->got = malloc(SERVER_BLOB_BYTES);
	visit->http.timeout_s = timeout_s;
	visit->http.owner = visit;
	visit->http.piece = piece_take;
	(void)snprintf(visit->http.address, sizeof visit->http.address,
		       "http://127.0.0.1:%u/images", server_port(visit->server));
	cr_assert_eq(fetch_http_open(&visit->http, "", "", &why), 0, "%s", why);
	return visit;
}

static void visit_free(struct visit *visit)
{
	cr_assert_not(server_was_followed(visit->server));
	fetch_http_close(&visit->http);
	server_free(visit->server);
	free(visit->got);
	free(visit);
}

static int visit_ask(struct visit *visit, enum lie lie, uint64_t bytes)
{
	const struct fetch_ask ask = { .what = FETCH_BLOB,
				       .bytes = bytes,
				       .digest = { (uint8_t)lie } };

	visit->bytes = 0;
	return fetch_http_get(&visit->http, &ask, visit->why);
}

static void visit_check(const struct visit *visit, enum lie lie)
{
	cr_assert_eq(visit->bytes, SERVER_BLOB_BYTES);
	for (uint32_t i = 0; i < SERVER_BLOB_BYTES; i++)
		cr_assert_eq(visit->got[i], blob_byte((uint8_t)lie, i), "byte %u", i);
}

Test(fetch_http, whole_blobs_come_in_order_over_one_connection)
{
	struct visit *visit = visit_new(60);

	for (unsigned i = 0; i < 10; i++) {
		cr_assert_eq(visit_ask(visit, LIE_NONE, SERVER_BLOB_BYTES), 0, "%s", visit->why);
		visit_check(visit, LIE_NONE);
	}
	/* A server that knows no ranges: nothing has to be resumed. */
	cr_assert_eq(visit_ask(visit, LIE_WHOLE, SERVER_BLOB_BYTES), 0, "%s", visit->why);
	visit_check(visit, LIE_WHOLE);
	cr_assert_eq(server_connections(visit->server), 1);
	visit_free(visit);
}

Test(fetch_http, lies_are_errors_that_say_what_and_give_nothing_away)
{
	static const struct {
		enum lie lie;
		int error;
		const char *says;
	} rows[] = {
		{ LIE_OTHER_RANGE, -EIO, "another range" },
		{ LIE_LONGER_RANGE, -EIO, "another range" },
		{ LIE_SHORTER_RANGE, -EIO, "another range" },
		{ LIE_NO_RANGE, -EIO, "another range" },
		{ LIE_TWO_RANGES, -EIO, "another range" },
		{ LIE_MORE, -EIO, "more than it promised" },
		{ LIE_HEAD, -EIO, "headers without end" },
		{ LIE_HINTS, -EIO, "headers without end" },
		{ LIE_MISSING, -ENOENT, "404" },
		{ LIE_FORBIDDEN, -EACCES, "403" },
		{ LIE_REDIRECT, -EIO, "redirect" },
		{ LIE_PAST, -EBADMSG, "less of it" },
		{ LIE_PACKED, -EIO, "encoding" },
		{ LIE_UNKNOWN, -EOPNOTSUPP, "how much" },
		{ LIE_LARGER, -EBADMSG, "another size" },
		{ LIE_SMALLER, -EBADMSG, "another size" },
	};
	struct visit *visit = visit_new(60);

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		int r = visit_ask(visit, rows[i].lie, SERVER_BLOB_BYTES);

		cr_expect_eq(r, rows[i].error, "lie %d: %s, %s", rows[i].lie, strerror(-r),
			     visit->why);
		cr_expect(strstr(visit->why, rows[i].says), "lie %d: %s", rows[i].lie, visit->why);
		cr_expect_lt(visit->bytes, SERVER_BLOB_BYTES);
		/* And the next is as if nothing had been. */
		cr_assert_eq(visit_ask(visit, LIE_NONE, SERVER_BLOB_BYTES), 0, "%s", visit->why);
		visit_check(visit, LIE_NONE);
	}
	visit_free(visit);
}

/* As often as there is time for, and not without end. */
Test(fetch_http, what_fails_for_a_while_is_asked_for_again_so_many_times)
{
	static const struct {
		enum lie lie;
		int error;
	} rows[] = { { LIE_CUT, -EIO },
		     { LIE_RESET, -ECONNRESET },
		     { LIE_BUSY, -EBUSY },
		     { LIE_GARBAGE, -EIO } };
	struct visit *visit = visit_new(1);

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		const unsigned before = server_connections(visit->server);
		int r = visit_ask(visit, rows[i].lie, SERVER_BLOB_BYTES);

		cr_expect_eq(r, rows[i].error, "lie %d: %s, %s", rows[i].lie, strerror(-r),
			     visit->why);
		cr_expect_leq(server_connections(visit->server) - before, 8);
	}
	visit_free(visit);
}

Test(fetch_http, what_hangs_or_drips_ends_in_time)
{
	static const enum lie lies[] = { LIE_HANG, LIE_DRIP };
	struct visit *visit = visit_new(1);

	for (size_t i = 0; i < 2; i++) {
		const uint64_t begin_ms = now_ms();

		cr_expect_eq(visit_ask(visit, lies[i], 4096), -ETIMEDOUT, "%s", visit->why);
		cr_expect(strstr(visit->why, "in time"), "%s", visit->why);
		cr_expect_lt(now_ms() - begin_ms, 1000 + held_up_ms());
	}
	visit_free(visit);
}

Test(fetch_http, an_end_of_who_takes_the_pieces_ends_it_at_once)
{
	struct visit *visit = visit_new(60);

	visit->piece_error = -EPIPE;
	cr_assert_eq(visit_ask(visit, LIE_NONE, SERVER_BLOB_BYTES), -EPIPE);
	visit_free(visit);
}

/* ---- a real server, by TLS ---- */

static void file_put(const char *path, const void *bytes, size_t count, mode_t mode)
{
	auto_close int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);

	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, bytes, count), (ssize_t)count);
}

/* A blob of nginx, whose authority is its own. */
static int tls_ask(const struct nginx *nginx, const char *host, const char *authorities,
		   struct visit *visit)
{
	char header[96];
	const char *why;
	int r;

	(void)snprintf(header, sizeof header, "%s/header", nginx->path);
	visit->http = (struct fetch_http){ .timeout_s = 60, .owner = visit, .piece = piece_take };
	(void)snprintf(visit->http.address, sizeof visit->http.address, "https://%s:%u/images",
		       host, nginx->tls_port);
	cr_assert_eq(fetch_http_open(&visit->http, header, authorities, &why), 0, "%s", why);
	r = visit_ask(visit, (enum lie)1, SERVER_BLOB_BYTES);
	fetch_http_close(&visit->http);
	return r;
}

Test(fetch_http, tls_is_believed_of_the_operators_authority_and_the_name_only)
{
	static const char secret[] = "Authorization: Bearer image-reader.example\n";
	auto_free uint8_t *contents = malloc(SERVER_BLOB_BYTES), *got = malloc(SERVER_BLOB_BYTES);
	struct visit visit = { .got = got };
	struct nginx nginx, other;
	char path[256], authorities[96];

	if (!nginx_start(&nginx))
		cr_skip_test("no nginx here: see tests/setup.sh");
	(void)snprintf(path, sizeof path, "%s/header", nginx.path);
	file_put(path, secret, sizeof secret - 1, 0600);
	server_fill(1, 0, contents, SERVER_BLOB_BYTES);
	nginx_blob_path(&nginx, 1, path);
	file_put(path, contents, SERVER_BLOB_BYTES, 0644);
	(void)snprintf(authorities, sizeof authorities, "%s/ca.pem", nginx.path);
	cr_expect_eq(tls_ask(&nginx, "127.0.0.1", authorities, &visit), 0, "%s", visit.why);
	visit_check(&visit, (enum lie)1);
	/* The certificate is of that address and no other name. */
	cr_expect_eq(tls_ask(&nginx, "localhost", authorities, &visit), -EKEYREJECTED);
	cr_expect(strstr(visit.why, "name"), "%s", visit.why);
	cr_expect_eq(visit.bytes, 0);
	/* Nor of another authority. */
	cr_assert(nginx_start(&other));
	(void)snprintf(authorities, sizeof authorities, "%s/ca.pem", other.path);
	cr_expect_eq(tls_ask(&nginx, "127.0.0.1", authorities, &visit), -EKEYREJECTED);
	cr_expect(strstr(visit.why, "certificate"), "%s", visit.why);
	cr_expect_eq(visit.bytes, 0);
	nginx_stop(&nginx);
	nginx_stop(&other);
}
