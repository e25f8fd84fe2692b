/*
 * Servers for tests of remotes. A thread per connection; all end when their clients have gone or
 * the server is freed.
 */
#include "tests/unit/remote_server.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/store/digest.h"
#include "engine/base/cleanup.h"
#include "tests/unit/remote_loop.h"

enum { CONNECTIONS_MAX = 256, REQUEST_BYTES_MAX = 4096 };

struct server {
	int fd;
	uint16_t port;
	pthread_t thread, threads[CONNECTIONS_MAX];
	int fds[CONNECTIONS_MAX];
	atomic_uint connections;
	atomic_bool was_followed;
};

struct connection {
	struct server *server;
	int fd;
};

struct request {
	unsigned blob;
	unsigned long long first, last;
};

static bool send_all(int fd, const void *bytes, size_t count)
{
	const char *at = bytes;

	while (count) {
		ssize_t n = send(fd, at, count, MSG_NOSIGNAL);

		if (n <= 0)
			return false;
		at += n;
		count -= (size_t)n;
	}
	return true;
}

void server_fill(uint8_t blob, uint64_t offset, void *ret, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i++)
		((uint8_t *)ret)[i] = blob_byte(blob, offset + i);
}

static bool body_send(int fd, uint8_t blob, uint64_t offset, uint32_t bytes)
{
	auto_free char *body = malloc(bytes);

	server_fill(blob, offset, body, bytes);
	return send_all(fd, body, bytes);
}

/* What it says of its range: first, last, size and how many bytes it promises. */
static bool head_send(int fd, const unsigned long long range[3], unsigned long long promised)
{
	char head[512];

	(void)snprintf(head, sizeof head,
		       "HTTP/1.1 206 Partial Content\r\nContent-Length: %llu\r\n"
		       "Content-Range: bytes %llu-%llu/%llu\r\n\r\n",
		       promised, range[0], range[1], range[2]);
	return send_all(fd, head, strlen(head));
}

static bool words_send(int fd, const char *status, const char *more)
{
	char head[512];

	(void)snprintf(head, sizeof head, "HTTP/1.1 %s\r\n%sContent-Length: 5\r\n\r\nwords", status,
		       more);
	return send_all(fd, head, strlen(head));
}

static void drip(int fd)
{
	while (send_all(fd, "x", 1))
		(void)usleep(50000);
}

static void head_without_end(int fd)
{
	char line[8192];

	memset(line, 'x', sizeof line);
	memcpy(line, "X-More: ", 8);
	memcpy(line + sizeof line - 2, "\r\n", 2);
	if (send_all(fd, "HTTP/1.1 206 Partial Content\r\n", 30))
		while (send_all(fd, line, sizeof line))
			;
}

static void hints_without_end(int fd)
{
	static const char hint[] = "HTTP/1.1 103 Early Hints\r\nLink: </>\r\n\r\n";

	while (send_all(fd, hint, sizeof hint - 1))
		;
}

static void hang_up(int fd)
{
	const struct linger linger = { 1, 0 };

	(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
}

/* Answers that are a range and lie about it. */
static bool range_answer(int fd, enum lie lie, const struct request *request)
{
	const uint8_t blob = (uint8_t)request->blob;
	unsigned long long range[3] = { request->first, request->last, SERVER_BLOB_BYTES };
	uint32_t bytes;

	if (range[1] >= SERVER_BLOB_BYTES)
		range[1] = SERVER_BLOB_BYTES - 1;
	if (lie == LIE_LARGER)
		range[2]++;
	if (lie == LIE_OTHER_RANGE) {
		range[0] += 4096;
		range[1] += 4096;
	} else if (lie == LIE_LONGER_RANGE) {
		range[1] += 4096;
	} else if (lie == LIE_SHORTER_RANGE) {
		range[1]--;
	}
	bytes = (uint32_t)(range[1] - range[0] + 1);
	if (lie == LIE_MORE)
		return head_send(fd, range, bytes + 100) &&
		       body_send(fd, blob, range[0], bytes + 100);
	if (lie == LIE_CUT)
		return head_send(fd, range, bytes) && body_send(fd, blob, range[0], bytes - 1) &&
		       false;
	return head_send(fd, range, bytes) && body_send(fd, blob, range[0], bytes);
}

/* Whether the connection goes on. */
static bool answer(int fd, const struct request *request)
{
	char head[128], byte;

	switch ((enum lie)request->blob) {
	case LIE_WHOLE:
		(void)snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n",
			       SERVER_BLOB_BYTES);
		return send_all(fd, head, strlen(head)) &&
		       body_send(fd, LIE_WHOLE, 0, SERVER_BLOB_BYTES);
	case LIE_SMALLER:
		return words_send(fd, "200 OK", "");
	case LIE_UNKNOWN:
		(void)send_all(fd, "HTTP/1.1 200 OK\r\n\r\nwords", 24);
		return false;
	case LIE_PACKED:
		return words_send(fd, "206 Partial Content",
				  "Content-Encoding: gzip\r\nContent-Range: bytes 0-4/5\r\n");
	case LIE_NO_RANGE:
		return words_send(fd, "206 Partial Content", "");
	case LIE_TWO_RANGES:
		return words_send(fd, "206 Partial Content",
				  "Content-Range: bytes 0-4/5\r\nContent-Range: bytes 0-4/5\r\n");
	case LIE_HANG:
		(void)recv(fd, &byte, 1, 0); /* until the client gives up */
		return false;
	case LIE_DRIP:
		if (head_send(fd, (const unsigned long long[]){ 0, 4095, 4096 }, 4096))
			drip(fd);
		return false;
	case LIE_GARBAGE:
		(void)send_all(fd, "SSH-2.0-images.example\r\n\r\n", 26);
		return false;
	case LIE_RESET:
		hang_up(fd);
		return false;
	case LIE_HEAD:
		head_without_end(fd);
		return false;
	case LIE_HINTS:
		hints_without_end(fd);
		return false;
	case LIE_MISSING:
		return words_send(fd, "404 Not Found", "");
	case LIE_FORBIDDEN:
		return words_send(fd, "403 Forbidden", "");
	case LIE_BUSY:
		return words_send(fd, "503 Service Unavailable", "");
	case LIE_REDIRECT:
		return words_send(fd, "302 Found", "Location: /away\r\n");
	case LIE_PAST:
		return words_send(fd, "416 Range Not Satisfiable", "");
	default:
		return range_answer(fd, (enum lie)request->blob, request);
	}
}

/* One request; false: the client went. */
static bool request_read(int fd, struct server *server, struct request *ret)
{
	char text[REQUEST_BYTES_MAX + 1];
	const char *range;
	size_t got = 0;

	do {
		ssize_t n = recv(fd, text + got, REQUEST_BYTES_MAX - got, 0);

		if (n <= 0)
			return false;
		got += (size_t)n;
		text[got] = 0;
	} while (!strstr(text, "\r\n\r\n") && got < REQUEST_BYTES_MAX);
	if (strncmp(text, "GET /away", 9) == 0)
		atomic_store(&server->was_followed, true);
	range = strstr(text, "Range: bytes=");
	return sscanf(text, "GET /images/blobs/sha256/%2x", &ret->blob) == 1 && range &&
	       sscanf(range, "Range: bytes=%llu-%llu", &ret->first, &ret->last) == 2;
}

static void *connection_serve(void *argument)
{
	struct connection *connection = argument;
	struct request request;

	while (request_read(connection->fd, connection->server, &request) &&
	       answer(connection->fd, &request))
		;
	(void)shutdown(connection->fd, SHUT_WR);
	if (request.blob == LIE_RESET)
		(void)dup2(connection->server->fd,
			   connection->fd); /* closes it, its number stays */
	free(connection);
	return NULL;
}

static void *server_accept(void *argument)
{
	struct server *server = argument;
	int fd;

	while ((fd = accept4(server->fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		const unsigned at = atomic_load(&server->connections);
		struct connection *connection = malloc(sizeof *connection);

		if (at == CONNECTIONS_MAX || !connection)
			abort();
		*connection = (struct connection){ server, fd };
		server->fds[at] = fd;
		if (pthread_create(&server->threads[at], NULL, connection_serve, connection))
			abort();
		atomic_store(&server->connections, at + 1);
	}
	return NULL;
}

struct server *server_new(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	struct server *server = calloc(1, sizeof *server);
	socklen_t bytes = sizeof address;

	cr_assert(server);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	server->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cr_assert_geq(server->fd, 0);
	cr_assert_eq(bind(server->fd, (struct sockaddr *)&address, sizeof address), 0);
	cr_assert_eq(listen(server->fd, 64), 0);
	cr_assert_eq(getsockname(server->fd, (struct sockaddr *)&address, &bytes), 0);
	server->port = ntohs(address.sin_port);
	cr_assert_eq(pthread_create(&server->thread, NULL, server_accept, server), 0);
	return server;
}

void server_free(struct server *server)
{
	(void)shutdown(server->fd, SHUT_RDWR);
	(void)pthread_join(server->thread, NULL);
	for (unsigned i = 0; i < server_connections(server); i++) {
		(void)shutdown(server->fds[i], SHUT_RDWR);
		(void)pthread_join(server->threads[i], NULL);
		(void)close(server->fds[i]);
	}
	(void)close(server->fd);
	free(server);
}

uint16_t server_port(const struct server *server)
{
	return server->port;
}

unsigned server_connections(struct server *server)
{
	return atomic_load(&server->connections);
}

bool server_was_followed(struct server *server)
{
	return atomic_load(&server->was_followed);
}

/* ---- nginx ---- */

/* Of an authority that signs itself, for 127.0.0.1. */
static void certificate_make(const char *folder)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *cert = X509_new();
	X509_EXTENSION *names =
		X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, "IP:127.0.0.1");
	char path[128];
	FILE *file;

	cr_assert(key && cert && names);
	cr_assert_eq(X509_set_version(cert, X509_VERSION_3), 1);
	ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
	X509_gmtime_adj(X509_getm_notBefore(cert), -3600);
	X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
	X509_set_pubkey(cert, key);
	X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC,
				   (const unsigned char *)"images.example", -1, -1, 0);
	X509_set_issuer_name(cert, X509_get_subject_name(cert));
	X509_add_ext(cert, names, -1);
	cr_assert_gt(X509_sign(cert, key, EVP_sha256()), 0);
	(void)snprintf(path, sizeof path, "%s/ca.pem", folder);
	file = fopen(path, "we");
	cr_assert(file && PEM_write_X509(file, cert) == 1);
	(void)fclose(file);
	(void)snprintf(path, sizeof path, "%s/key.pem", folder);
	file = fopen(path, "we");
	cr_assert(file && PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL) == 1);
	(void)fclose(file);
	X509_EXTENSION_free(names);
	X509_free(cert);
	EVP_PKEY_free(key);
}

static uint16_t port_unused(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t bytes = sizeof address;
	auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	cr_assert_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
	cr_assert_eq(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
	return ntohs(address.sin_port);
}

static void nginx_configure(const struct nginx *nginx)
{
	static const char text[] =
		"daemon off; master_process off; user root; pid %s/pid; error_log stderr crit;\n"
		"events { worker_connections 128; }\n"
		"http { access_log off; client_body_temp_path %s; proxy_temp_path %s;\n"
		"fastcgi_temp_path %s; uwsgi_temp_path %s; scgi_temp_path %s;\n"
		"server { listen 127.0.0.1:%u; listen 127.0.0.1:%u ssl;\n"
		"ssl_certificate %s/ca.pem; ssl_certificate_key %s/key.pem;\n"
		"location /images/ { alias %s/;\n"
		"if ($http_authorization != \"Bearer image-reader.example\")\n"
		"{ return 403; } } } }\n";
	const char *p = nginx->path;
	char path[128];
	FILE *file;

	(void)snprintf(path, sizeof path, "%s/conf", p);
	file = fopen(path, "we");
	cr_assert(file);
	fprintf(file, text, p, p, p, p, p, p, nginx->port, nginx->tls_port, p, p, p);
	(void)fclose(file);
	(void)snprintf(path, sizeof path, "%s/blobs", p);
	cr_assert_eq(mkdir(path, 0755), 0);
	(void)snprintf(path, sizeof path, "%s/blobs/sha256", p);
	cr_assert_eq(mkdir(path, 0755), 0);
}

static bool port_answers(uint16_t port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
	auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
}

bool nginx_start(struct nginx *ret)
{
	const char *program = "/usr/sbin/nginx";
	char conf[80];

	if (access(program, X_OK) < 0)
		return false;
	*ret = (struct nginx){ .port = port_unused(), .path = "/tmp/dsec-nginx-XXXXXX" };
	do
		ret->tls_port = port_unused();
	while (ret->tls_port == ret->port);
	cr_assert(mkdtemp(ret->path));
	cr_assert_eq(chmod(ret->path, 0755), 0);
	certificate_make(ret->path);
	nginx_configure(ret);
	(void)snprintf(conf, sizeof conf, "%s/conf", ret->path);
	ret->pid = fork();
	cr_assert_geq(ret->pid, 0);
	if (ret->pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)execl(program, "nginx", "-p", ret->path, "-c", conf, (char *)NULL);
		_exit(127);
	}
	for (unsigned ms = 0; !port_answers(ret->tls_port); ms += 10) {
		cr_assert_lt(ms, held_up_ms(), "nginx does not answer");
		(void)usleep(10000);
	}
	return true;
}

void nginx_stop(const struct nginx *nginx)
{
	static const char *const names[] = { "ca.pem", "key.pem", "conf", "pid", "header" };
	char path[256];

	(void)kill(nginx->pid, SIGKILL);
	(void)waitpid(nginx->pid, NULL, 0);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		(void)snprintf(path, sizeof path, "%s/%s", nginx->path, names[i]);
		(void)unlink(path);
	}
	for (unsigned blob = 0; blob < 256; blob++) {
		nginx_blob_path(nginx, (uint8_t)blob, path);
		(void)unlink(path);
	}
	(void)snprintf(path, sizeof path, "%s/blobs/sha256", nginx->path);
	(void)rmdir(path);
	(void)snprintf(path, sizeof path, "%s/blobs", nginx->path);
	(void)rmdir(path);
	(void)rmdir(nginx->path);
}

void nginx_blob_path(const struct nginx *nginx, uint8_t blob, char ret[256])
{
	const uint8_t digest[DIGEST_BYTES] = { blob };
	char hex[DIGEST_HEX_BYTES];

	digest_hex(digest, hex);
	(void)snprintf(ret, 256, "%s/blobs/sha256/%s", nginx->path, hex);
}
