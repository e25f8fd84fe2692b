/* A remote that is an HTTP server: against one that lies, and against nginx, on loopback. */
#include "tests/unit/remote_loop.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/remote_server.h"

struct visit {
	struct server *server;
	struct loop loop;
	struct asked asked;
	char address[128];
};

static struct visit *visit_new(uint32_t timeout_s)
{
	struct visit *visit = calloc(1, sizeof *visit);

	cr_assert(visit);
	visit->server = server_new();
	visit->loop.config.remote_timeout_s = timeout_s;
	(void)snprintf(visit->address, sizeof visit->address, "http://127.0.0.1:%u/images/",
		       server_port(visit->server));
	loop_open(&visit->loop, visit->address);
	return visit;
}

static void visit_free(struct visit *visit)
{
	loop_close(&visit->loop);
	server_free(visit->server);
	free(visit->asked.read.buffer);
	free(visit);
}

static int visit_ask(struct visit *visit, enum lie lie, uint64_t offset, uint32_t bytes)
{
	visit->asked.read.blob[0] = (uint8_t)lie;
	return ask_and_wait(&visit->loop, &visit->asked, offset, bytes);
}

Test(remote_http, ranges_come_as_asked_over_one_connection)
{
	struct visit *visit = visit_new(0);

	for (unsigned i = 0; i < 20; i++) {
		(void)visit_ask(visit, LIE_NONE, i * 1000, 65536);
		assert_read(&visit->asked, 65536);
	}
	(void)visit_ask(visit, LIE_NONE, SERVER_BLOB_BYTES - 10, 4096);
	assert_read(&visit->asked, 10);
	cr_assert_eq(visit_ask(visit, LIE_PAST, SERVER_BLOB_BYTES, 4096), 0);
	cr_assert_eq(server_connections(visit->server), 1);
	visit_free(visit);
}

Test(remote_http, server_without_ranges_is_read_where_little_comes_in_vain)
{
	struct visit *visit = visit_new(0);

	(void)visit_ask(visit, LIE_WHOLE, 0, 4096);
	assert_read(&visit->asked, 4096);
	(void)visit_ask(visit, LIE_WHOLE, 200000, 65536);
	assert_read(&visit->asked, 65536);
	(void)visit_ask(visit, LIE_WHOLE, SERVER_BLOB_BYTES - 7, 65536);
	assert_read(&visit->asked, 7);
	cr_assert_eq(visit_ask(visit, LIE_WHOLE, REMOTE_BYTES_MAX, 1), -EOPNOTSUPP);
	visit_free(visit);
}

Test(remote_http, lies_are_errors_of_their_kind)
{
	static const struct {
		enum lie lie;
		int error;
	} rows[] = {
		{ LIE_OTHER_RANGE, -EIO }, { LIE_LONGER_RANGE, -EIO }, { LIE_SHORTER_RANGE, -EIO },
		{ LIE_NO_RANGE, -EIO },	   { LIE_TWO_RANGES, -EIO },   { LIE_CUT, -EIO },
		{ LIE_MORE, -EIO },	   { LIE_GARBAGE, -EIO },      { LIE_RESET, -ECONNRESET },
		{ LIE_HEAD, -EIO },	   { LIE_MISSING, -ENOENT },   { LIE_FORBIDDEN, -EACCES },
		{ LIE_BUSY, -EBUSY },	   { LIE_REDIRECT, -EIO },     { LIE_PACKED, -EIO },
		{ LIE_HINTS, -EIO },
	};
	struct visit *visit = visit_new(0);

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		int result = visit_ask(visit, rows[i].lie, 8192, 4096);

		cr_expect_eq(result, rows[i].error, "lie %d: %s", rows[i].lie, strerror(-result));
		/* And the next read is as if nothing had been. */
		(void)visit_ask(visit, LIE_NONE, 8192, 4096);
		assert_read(&visit->asked, 4096);
	}
	cr_assert_not(server_was_followed(visit->server));
	visit_free(visit);
}

Test(remote_http, server_that_is_not_there_refuses)
{
	struct visit *visit = visit_new(0);
	const uint16_t port = server_port(visit->server);

	server_free(visit->server);
	visit->server = server_new();
	if (server_port(visit->server) != port)
		cr_assert_eq(visit_ask(visit, LIE_NONE, 0, 4096), -ECONNREFUSED);
	visit_free(visit);
}

enum { MANY = 96 };

Test(remote_http, many_reads_share_a_bounded_number_of_connections)
{
	struct visit *visit = visit_new(0);
	struct asked *asked = calloc(MANY, sizeof *asked);

	cr_assert(asked);
	for (unsigned i = 0; i < MANY; i++)
		ask(&visit->loop, &asked[i], i * 3000, 65536);
	loop_until(&visit->loop, asked, MANY);
	for (unsigned i = 0; i < MANY; i++) {
		const uint64_t left = SERVER_BLOB_BYTES - i * 3000;

		assert_read(&asked[i], left < 65536 ? (uint32_t)left : 65536);
		free(asked[i].read.buffer);
	}
	cr_assert_leq(server_connections(visit->server), (unsigned)REMOTE_FLIGHTS);
	free(asked);
	visit_free(visit);
}

Test(remote_http, what_hangs_or_drips_ends_in_time_and_others_are_read_meanwhile)
{
	struct visit *visit = visit_new(1);
	struct asked *asked = calloc(MANY, sizeof *asked);
	const uint64_t begin_ns = io_clock_ns(visit->loop.shard.io);

	cr_assert(asked);
	for (unsigned i = 0; i < 12; i++) {
		asked[i].read.blob[0] = i % 2 ? LIE_DRIP : LIE_HANG;
		ask(&visit->loop, &asked[i], 0, 4096);
	}
	for (unsigned i = 0; i < 8; i++) {
		(void)visit_ask(visit, LIE_NONE, i, 4096);
		assert_read(&visit->asked, 4096);
	}
	loop_until(&visit->loop, asked, 12);
	cr_assert_lt(io_clock_ns(visit->loop.shard.io) - begin_ns,
		     1000000000 + held_up_ms() * 1000000);
	for (unsigned i = 0; i < 12; i++) {
		cr_assert_eq(asked[i].result, -ETIMEDOUT);
		free(asked[i].read.buffer);
	}
	free(asked);
	visit_free(visit);
}

Test(remote_http, cancelled_reads_are_told_so_and_their_buffers_left_alone)
{
	struct visit *visit = visit_new(0);
	struct asked *asked = calloc(MANY, sizeof *asked);

	cr_assert(asked);
	for (unsigned i = 0; i < MANY; i++) {
		asked[i].read.blob[0] = i % 2 ? LIE_NONE : LIE_HANG;
		ask(&visit->loop, &asked[i], 0, 65536);
	}
	loop_turn(&visit->loop, io_clock_ns(visit->loop.shard.io) + 20000000);
	for (unsigned i = 0; i < MANY; i += 2) {
		const uint8_t *buffer = asked[i].read.buffer;

		remote_cancel(visit->loop.remote, &asked[i].read);
		cr_assert_eq(buffer[0], 0xa5);
	}
	loop_until(&visit->loop, asked, MANY);
	for (unsigned i = 0; i < MANY; i++) {
		if (i % 2)
			assert_read(&asked[i], 65536);
		else
			cr_assert_eq(asked[i].result, -ECANCELED);
		free(asked[i].read.buffer);
	}
	free(asked);
	visit_free(visit);
}

Test(remote_http, address_names_a_server_and_no_credentials)
{
	static const struct {
		const char *address, *why;
	} rows[] = {
		{ "http://user@images.example/", "--remote-header-file" },
		{ "https://:word@images.example/", "--remote-header-file" },
		{ "https://images.example/?all", "query" },
		{ "https://images.example/#part", "fragment" },
		{ "http://", "address" },
		{ "https://images.example:99999/", "address" },
		{ "httpx://images.example/", "address" },
	};
	const char *why = NULL;

	cr_assert_eq(remote_check("https://images.example/rl/images", &why), 0);
	cr_assert_eq(remote_check("http://[::1]:8080", &why), 0);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		cr_expect_eq(remote_check(rows[i].address, &why), -EINVAL, "%s", rows[i].address);
		cr_expect(strstr(why, rows[i].why), "%s: %s", rows[i].address, why);
	}
}

/* ---- a real server ---- */

struct nginx_visit {
	struct nginx nginx;
	struct loop loop;
	struct asked asked;
	char address[128], header_path[80], ca_path[80];
};

enum { NGINX_BLOB_BYTES = 8 << 20 };

static void nginx_file_write(const char *path, const void *bytes, size_t count, mode_t mode)
{
	auto_close int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);

	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, bytes, count), (ssize_t)count);
}

static struct nginx_visit *nginx_visit_new(void)
{
	struct nginx_visit *visit = calloc(1, sizeof *visit);
	auto_free uint8_t *contents = malloc(NGINX_BLOB_BYTES);
	static const char header[] = "Authorization: Bearer image-reader.example\n";
	char path[256];

	cr_assert(visit && contents);
	if (!nginx_start(&visit->nginx)) {
		free(visit);
		cr_skip_test("no nginx here: see tests/setup.sh");
	}
	server_fill(1, 0, contents, NGINX_BLOB_BYTES);
	nginx_blob_path(&visit->nginx, 1, path);
	nginx_file_write(path, contents, NGINX_BLOB_BYTES, 0644);
	(void)snprintf(visit->header_path, sizeof visit->header_path, "%s/header",
		       visit->nginx.path);
	nginx_file_write(visit->header_path, header, sizeof header - 1, 0600);
	(void)snprintf(visit->ca_path, sizeof visit->ca_path, "%s/ca.pem", visit->nginx.path);
	visit->loop.config.remote_header_path = visit->header_path;
	visit->loop.config.remote_ca_path = visit->ca_path;
	visit->asked.read.blob[0] = 1;
	return visit;
}

static void nginx_visit_open(struct nginx_visit *visit, bool by_tls, const char *host)
{
	(void)snprintf(visit->address, sizeof visit->address, "http%s://%s:%u/images",
		       by_tls ? "s" : "", host, by_tls ? visit->nginx.tls_port : visit->nginx.port);
	loop_open(&visit->loop, visit->address);
}

static void nginx_visit_free(struct nginx_visit *visit)
{
	loop_close(&visit->loop);
	nginx_stop(&visit->nginx);
	free(visit->asked.read.buffer);
	free(visit);
}

static void nginx_read_all(struct nginx_visit *visit)
{
	enum { PIECE = 256 << 10, PIECES = NGINX_BLOB_BYTES / PIECE };
	struct asked *asked = calloc(PIECES, sizeof *asked);
	const uint64_t begin_ns = io_clock_ns(visit->loop.shard.io);
	const struct io_stats *stats = io_stats(visit->loop.shard.io);

	cr_assert(asked);
	for (unsigned i = 0; i < PIECES; i++) {
		asked[i].read.blob[0] = 1;
		ask(&visit->loop, &asked[i], (uint64_t)i * PIECE, PIECE);
	}
	loop_until(&visit->loop, asked, PIECES);
	cr_log_info("%d MiB in %u reads: %llu us; the longest callback %llu us\n",
		    NGINX_BLOB_BYTES >> 20, (unsigned)PIECES,
		    (unsigned long long)(io_clock_ns(visit->loop.shard.io) - begin_ns) / 1000,
		    (unsigned long long)stats->callback_max_ns / 1000);
	for (unsigned i = 0; i < PIECES; i++) {
		assert_read(&asked[i], PIECE);
		free(asked[i].read.buffer);
	}
	free(asked);
}

Test(remote_http, nginx_is_read_with_credentials_of_a_file)
{
	struct nginx_visit *visit = nginx_visit_new();

	nginx_visit_open(visit, false, "127.0.0.1");
	nginx_read_all(visit);
	(void)ask_and_wait(&visit->loop, &visit->asked, NGINX_BLOB_BYTES - 100, 4096);
	assert_read(&visit->asked, 100);
	cr_assert_eq(ask_and_wait(&visit->loop, &visit->asked, NGINX_BLOB_BYTES, 4096), 0);
	visit->asked.read.blob[0] = 2;
	cr_assert_eq(ask_and_wait(&visit->loop, &visit->asked, 0, 4096), -ENOENT);
	loop_close(&visit->loop);
	visit->loop.config.remote_header_path = NULL;
	nginx_visit_open(visit, false, "127.0.0.1");
	cr_assert_eq(ask_and_wait(&visit->loop, &visit->asked, 0, 4096), -EACCES);
	nginx_visit_free(visit);
}

Test(remote_http, tls_is_believed_of_the_authority_and_the_name_only)
{
	struct nginx_visit *visit = nginx_visit_new();

	nginx_visit_open(visit, true, "127.0.0.1");
	nginx_read_all(visit);
	loop_close(&visit->loop);
	nginx_visit_open(visit, true, "127.0.0.2"); /* nobody is there */
	cr_assert_eq(ask_and_wait(&visit->loop, &visit->asked, 0, 4096), -ECONNREFUSED);
	loop_close(&visit->loop);
	nginx_visit_open(visit, true, "localhost"); /* is not what the certificate is of */
	cr_assert_eq(ask_and_wait(&visit->loop, &visit->asked, 0, 4096), -EKEYREJECTED);
	nginx_visit_free(visit);
}

Test(remote_http, files_that_others_may_read_or_that_hold_no_headers_are_refused)
{
	static const char *const wrong[] = { "no colon\n", "Name:\n", ": value\n", "A: b\x01\n",
					     "-H: @/etc/passwd\nfile name: x\n" };
	struct nginx_visit *visit = nginx_visit_new();
	struct loop *loop = &visit->loop;

	nginx_visit_open(visit, true, "127.0.0.1");
	remote_close(loop->remote);
	cr_assert_eq(chmod(visit->header_path, 0644), 0);
	cr_assert_eq(remote_open(visit->address, &loop->shard, &loop->remote), -EPERM);
	cr_assert_eq(chmod(visit->header_path, 0600), 0);
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		nginx_file_write(visit->header_path, wrong[i], strlen(wrong[i]), 0600);
		cr_expect_eq(remote_open(visit->address, &loop->shard, &loop->remote), -EINVAL,
			     "%zu", i);
	}
	loop->config.remote_header_path = NULL;
	loop->config.remote_ca_path = visit->header_path;
	cr_assert_eq(remote_open(visit->address, &loop->shard, &loop->remote), -ENOENT);
	loop->remote = NULL;
	nginx_visit_free(visit);
}
