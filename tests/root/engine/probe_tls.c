/*
 * A server and a client of TLS, for tests: the server runs in the internet's namespace, the client
 * inside sandboxes. The server's certificate is of its own making, and no client looks at it.
 *
 *	serve ADDRESS PORT		says whom a client meant
 *	hi ADDRESS PORT NAME [HOW]	what the server says; NAME "-": none is shown; HOW: below
 *	get ADDRESS PORT NAME BYTES	so many bytes come: their SHA-256
 *	put ADDRESS PORT NAME BYTES	so many bytes go: their SHA-256, as the server has it
 *	hash BYTES			what both have to say
 *	hold ADDRESS PORT NAME		says "held", then how it ended
 *	mute ADDRESS PORT COUNT		so many that say nothing: "mute", "open N"
 *	raw ADDRESS PORT TEXT		says that instead, and what comes
 *	peer ADDRESS PORT		what getpeername() says
 *
 * HOW: "bytes" sends one byte at a time, "records" a hello of two records.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

enum { WAIT_S = 60, LINE_BYTES = 256, BLOCK_BYTES = 16384, FRAGMENT_BYTES = 512, MUTES_MAX = 256 };

static int fail(const char *what)
{
	printf("%s: %s\n", what, strerror(errno));
	return 1;
}

/* ---- bytes that both sides know ---- */

struct pattern {
	uint64_t state;
	EVP_MD_CTX *hash;
};

static void pattern_begin(struct pattern *pattern)
{
	pattern->state = 88172645463325252ull;
	pattern->hash = EVP_MD_CTX_new();
	EVP_DigestInit_ex(pattern->hash, EVP_sha256(), NULL);
}

static void pattern_next(struct pattern *pattern, unsigned char block[BLOCK_BYTES])
{
	for (size_t i = 0; i < BLOCK_BYTES; i += sizeof pattern->state) {
		pattern->state ^= pattern->state << 13;
		pattern->state ^= pattern->state >> 7;
		pattern->state ^= pattern->state << 17;
		memcpy(block + i, &pattern->state, sizeof pattern->state);
	}
}

static void pattern_end(struct pattern *pattern, char ret[65])
{
	unsigned char digest[32];

	EVP_DigestFinal_ex(pattern->hash, digest, NULL);
	EVP_MD_CTX_free(pattern->hash);
	for (int i = 0; i < 32; i++)
		(void)sprintf(ret + 2 * i, "%02x", digest[i]);
}

/* ssl NULL: nobody hears of it. 0, or it was cut. */
static int pattern_send(SSL *ssl, size_t bytes, char ret_hash[65])
{
	unsigned char block[BLOCK_BYTES];
	struct pattern pattern;
	int r = 0;

	pattern_begin(&pattern);
	while (r == 0 && bytes) {
		const size_t count = bytes < sizeof block ? bytes : sizeof block;

		pattern_next(&pattern, block);
		EVP_DigestUpdate(pattern.hash, block, count);
		if (ssl && SSL_write(ssl, block, (int)count) != (int)count)
			r = -1;
		bytes -= count;
	}
	pattern_end(&pattern, ret_hash);
	return r;
}

static int pattern_receive(SSL *ssl, size_t bytes, char ret_hash[65])
{
	unsigned char block[BLOCK_BYTES];
	struct pattern pattern;
	int got = 1;

	pattern_begin(&pattern);
	while (got > 0 && bytes) {
		got = SSL_read(ssl, block, (int)(bytes < sizeof block ? bytes : sizeof block));
		if (got > 0) {
			EVP_DigestUpdate(pattern.hash, block, (size_t)got);
			bytes -= (size_t)got;
		}
	}
	pattern_end(&pattern, ret_hash);
	return bytes ? -1 : 0;
}

/* ---- sockets ---- */

static struct sockaddr_in address_of(const char *address, const char *port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)) };

	if (inet_pton(AF_INET, address, &at.sin_addr) != 1)
		exit(2);
	return at;
}

/* -1: errno says why. */
static int reach(const char *address, const char *port)
{
	const struct sockaddr_in at = address_of(address, port);
	const struct timeval wait = { .tv_sec = WAIT_S };
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	const int on = 1;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
	return connect(fd, (const struct sockaddr *)&at, sizeof at) < 0 ? -1 : fd;
}

/* One byte in each packet. */
static int byte_write(BIO *bio, const char *bytes, int count)
{
	const int fd = *(int *)BIO_get_data(bio);

	for (int i = 0; i < count; i++)
		if (send(fd, bytes + i, 1, MSG_NOSIGNAL) != 1)
			return -1;
	return count;
}

static int byte_read(BIO *bio, char *bytes, int count)
{
	return (int)recv(*(int *)BIO_get_data(bio), bytes, (size_t)count, 0);
}

static long byte_control(BIO *bio, int command, long number, void *pointer)
{
	(void)bio;
	(void)number;
	(void)pointer;
	return command == BIO_CTRL_FLUSH;
}

static BIO *bytes_bio(int *fd)
{
	BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK | 100, "bytes");
	BIO *bio;

	BIO_meth_set_write(method, byte_write);
	BIO_meth_set_read(method, byte_read);
	BIO_meth_set_ctrl(method, byte_control);
	bio = BIO_new(method);
	BIO_set_data(bio, fd);
	BIO_set_init(bio, 1);
	return bio;
}

/* ---- client ---- */

/* So many protocols that the hello takes two records. */
static void hello_lengthen(SSL *ssl)
{
	unsigned char names[600];

	for (size_t i = 0; i < sizeof names; i += 20) {
		names[i] = 19;
		memset(names + i + 1, 'a' + (int)(i / 20) % 26, 19);
	}
	(void)SSL_set_alpn_protos(ssl, names, sizeof names);
	(void)SSL_set_max_send_fragment(ssl, FRAGMENT_BYTES);
}

/* NULL: it says why. */
static SSL *secure(int *fd, const char *name, const char *how)
{
	SSL *ssl = SSL_new(SSL_CTX_new(TLS_client_method()));
	int r;

	if (strcmp(name, "-") != 0)
		(void)SSL_set_tlsext_host_name(ssl, name);
	if (!strcmp(how, "bytes")) {
		BIO *bio = bytes_bio(fd);

		SSL_set_bio(ssl, bio, bio);
	} else {
		(void)SSL_set_fd(ssl, *fd);
	}
	if (!strcmp(how, "records"))
		hello_lengthen(ssl);
	errno = 0;
	r = SSL_connect(ssl);
	if (r == 1)
		return ssl;
	(void)fail(errno ? "tls" : "tls failed");
	return NULL;
}

static int line_exchange(SSL *ssl, const char *line)
{
	char answer[LINE_BYTES];
	int got;

	if (SSL_write(ssl, line, (int)strlen(line)) <= 0)
		return fail("write");
	got = SSL_read(ssl, answer, sizeof answer - 1);
	if (got <= 0)
		return fail("read");
	printf("%.*s", got, answer);
	return 0;
}

/* Either way, and whether both ends of the stream were told. */
static int transfer(SSL *ssl, const char *verb, const char *bytes)
{
	char line[LINE_BYTES], hash[65];
	int r;

	(void)snprintf(line, sizeof line, "%s %s\n", verb, bytes);
	if (SSL_write(ssl, line, (int)strlen(line)) <= 0)
		return fail("write");
	if (!strcmp(verb, "get")) {
		r = pattern_receive(ssl, strtoul(bytes, NULL, 10), hash);
	} else {
		r = pattern_send(ssl, strtoul(bytes, NULL, 10), hash);
		if (r == 0 && SSL_read(ssl, hash, 64) != 64)
			r = -1;
	}
	if (r < 0)
		return fail(verb);
	printf("%.64s\n", hash);
	(void)SSL_shutdown(ssl);
	return SSL_shutdown(ssl) == 1 ? 0 : fail("end");
}

static int client_run(int argc, char **argv)
{
	int fd = reach(argv[2], argv[3]);
	char byte;
	SSL *ssl;

	if (fd < 0) /* it may be reset before connect() has returned */
		return fail(errno == ECONNRESET ? "tls" : "connect");
	ssl = secure(&fd, argv[4], argc > 5 ? argv[5] : "");
	if (!ssl)
		return 1;
	if (!strcmp(argv[1], "hi"))
		return line_exchange(ssl, "hi\n");
	if (strcmp(argv[1], "hold") != 0)
		return transfer(ssl, argv[1], argv[5]);
	printf("held\n");
	(void)fflush(stdout);
	errno = 0;
	return SSL_read(ssl, &byte, 1) > 0 ? 2 : fail("hold");
}

static int raw_run(const char *address, const char *port, const char *text)
{
	int fd = reach(address, port);
	char answer[LINE_BYTES];
	ssize_t got;

	if (fd < 0)
		return fail("connect");
	if (send(fd, text, strlen(text), MSG_NOSIGNAL) < 0)
		return fail("send");
	got = recv(fd, answer, sizeof answer, 0);
	if (got < 0)
		return fail("raw");
	printf("%.*s", (int)got, answer);
	return 0;
}

static int mute_run(const char *address, const char *port, int count)
{
	int fds[MUTES_MAX], open = 0;
	char byte;

	for (int i = 0; i < count && i < MUTES_MAX; i++) {
		fds[i] = reach(address, port);
		if (fds[i] < 0)
			return fail("connect");
	}
	printf("mute\n");
	(void)fflush(stdout);
	for (int i = 0; i < count && i < MUTES_MAX; i++)
		open += recv(fds[i], &byte, 1, 0) >= 0 || errno != ECONNRESET;
	printf("open %d\n", open);
	return 0;
}

static int peer_run(const char *address, const char *port)
{
	int fd = reach(address, port);
	struct sockaddr_in at = { 0 };
	socklen_t bytes = sizeof at;

	if (fd < 0)
		return fail("connect");
	if (getpeername(fd, (struct sockaddr *)&at, &bytes) < 0)
		return fail("getpeername");
	printf("%s %d\n", inet_ntoa(at.sin_addr), ntohs(at.sin_port));
	return 0;
}

/* ---- server ---- */

static SSL_CTX *server_context(void)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	SSL_CTX *context = SSL_CTX_new(TLS_server_method());
	X509 *certificate = X509_new();
	X509_NAME *subject = X509_get_subject_name(certificate);

	(void)X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
	(void)X509_gmtime_adj(X509_getm_notAfter(certificate), 24 * 3600);
	(void)X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
					 (const unsigned char *)"test.example", -1, -1, 0);
	(void)X509_set_issuer_name(certificate, subject);
	(void)X509_set_pubkey(certificate, key);
	if (!X509_sign(certificate, key, EVP_sha256()) ||
	    SSL_CTX_use_certificate(context, certificate) != 1 ||
	    SSL_CTX_use_PrivateKey(context, key) != 1)
		exit(3);
	return context;
}

static void client_serve(SSL *ssl, int fd)
{
	char line[LINE_BYTES] = "", text[LINE_BYTES], hash[65];
	struct sockaddr_in from = { 0 };
	socklen_t bytes = sizeof from;
	const char *name;

	(void)SSL_set_fd(ssl, fd);
	if (SSL_accept(ssl) != 1 || SSL_read(ssl, line, sizeof line - 1) <= 0)
		return;
	name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
	(void)getpeername(fd, (struct sockaddr *)&from, &bytes); /* fits */
	(void)snprintf(text, sizeof text, "%s from %s\n", name ? name : "nobody",
		       inet_ntoa(from.sin_addr));
	if (!strncmp(line, "get ", 4))
		(void)pattern_send(ssl, strtoul(line + 4, NULL, 10), hash); /* the client looks */
	else if (!strncmp(line, "put ", 4) &&
		 pattern_receive(ssl, strtoul(line + 4, NULL, 10), hash) == 0)
		(void)SSL_write(ssl, hash, 64); /* likewise */
	else
		(void)SSL_write(ssl, text, (int)strlen(text));
	while (SSL_read(ssl, line, sizeof line) > 0)
		;
	(void)SSL_shutdown(ssl); /* after the client's */
}

static int serve(const char *address, const char *port)
{
	const struct sockaddr_in at = address_of(address, port);
	SSL_CTX *context = server_context();
	int server = socket(AF_INET, SOCK_STREAM, 0), fd;
	const int on = 1;

	(void)signal(SIGCHLD, SIG_IGN);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(server, (const struct sockaddr *)&at, sizeof at) < 0 || listen(server, 64) < 0)
		return fail("serve");
	while ((fd = accept(server, NULL, NULL)) >= 0) {
		if (fork() == 0) {
			(void)close(server);
			client_serve(SSL_new(context), fd);
			_exit(0);
		}
		(void)close(fd);
	}
	return fail("accept");
}

int main(int argc, char **argv)
{
	char hash[65];

	if (argc == 4 && !strcmp(argv[1], "serve"))
		return serve(argv[2], argv[3]);
	if (argc == 4 && !strcmp(argv[1], "peer"))
		return peer_run(argv[2], argv[3]);
	if (argc == 5 && !strcmp(argv[1], "raw"))
		return raw_run(argv[2], argv[3], argv[4]);
	if (argc == 5 && !strcmp(argv[1], "mute"))
		return mute_run(argv[2], argv[3], atoi(argv[4]));
	if (argc == 3 && !strcmp(argv[1], "hash"))
		return pattern_send(NULL, strtoul(argv[2], NULL, 10), hash), puts(hash) < 0;
	if (argc >= 5)
		return client_run(argc, argv);
	fprintf(stderr, "see probe_tls.c\n");
	return 2;
}
