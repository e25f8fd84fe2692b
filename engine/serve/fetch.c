/*
 * dsec-fetch ADDRESS TIMEOUT_S HEADERS AUTHORITIES: reads an image layout on a server for
 * dsec-store pull, which has no network. It has a network and nothing else, and ends with its
 * socket. Must hold: each question is answered, by pieces or by one error.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/serve/fetch_confine.h"
#include "engine/serve/fetch_http.h"

enum { ARG_ADDRESS = 1, ARG_TIMEOUT, ARG_HEADERS, ARG_AUTHORITIES, ARGS, TIMEOUT_S_MAX = 3600 };

static const struct fetch_piece late = {
	.error = ETIMEDOUT,
	.why = "the server's name was not looked up in time",
};

/* Nothing but system calls: it comes at any time. */
static void lookup_late(int number)
{
	(void)number;
	(void)!write(FETCH_FD, &late, sizeof late); /* or nobody reads it */
	_exit(EXIT_FAILURE);
}

static int socket_write(const void *bytes, size_t count)
{
	const char *at = bytes;

	while (count) {
		ssize_t n = send(FETCH_FD, at, count, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		at += n;
		count -= (size_t)n;
	}
	return 0;
}

static int piece_write(void *owner, const void *bytes, uint32_t count, uint64_t total)
{
	const struct fetch_piece piece = { .bytes = count, .total = total };
	int r = socket_write(&piece, sizeof piece);

	(void)owner;
	return r < 0 ? r : socket_write(bytes, count);
}

static int error_write(int error, const char *why)
{
	struct fetch_piece piece = { .error = error };

	(void)snprintf(piece.why, sizeof piece.why, "%s", why);
	return socket_write(&piece, sizeof piece);
}

static bool ask_read(struct fetch_ask *ret)
{
	ssize_t n;

	while ((n = recv(FETCH_FD, ret, sizeof *ret, MSG_WAITALL)) < 0 && errno == EINTR)
		;
	return n == (ssize_t)sizeof *ret;
}

/* `error`: it cannot begin, and each question is told so. */
static int serve(struct fetch_http *http, int error, const char *why)
{
	struct fetch_ask ask;
	char its_why[FETCH_WHY_BYTES];
	int r = 0;

	while (r >= 0 && ask_read(&ask)) {
		(void)snprintf(its_why, sizeof its_why, "%s", why);
		if (error >= 0)
			r = fetch_http_get(http, &ask, its_why);
		if (error < 0 || r < 0)
			r = error_write(error < 0 ? -error : -r, its_why);
	}
	return r;
}

int main(int argc, char **argv)
{
	struct fetch_http http = { .piece = piece_write };
	const char *why = "";
	long timeout_s = argc == ARGS ? strtol(argv[ARG_TIMEOUT], NULL, 10) : 0;
	int error, r;

	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || timeout_s < 1 || timeout_s > TIMEOUT_S_MAX ||
	    strlen(argv[ARG_ADDRESS]) >= sizeof http.address) {
		fprintf(stderr, "usage: dsec-fetch ADDRESS TIMEOUT_S HEADERS AUTHORITIES\n"
				"It is started by dsec-store.\n");
		return EXIT_FAILURE;
	}
	http.timeout_s = (uint32_t)timeout_s;
	memcpy(http.address, argv[ARG_ADDRESS], strlen(argv[ARG_ADDRESS]) + 1);
	for (size_t at = strlen(http.address); at && http.address[at - 1] == '/'; at--)
		http.address[at - 1] = 0;
	(void)signal(SIGALRM, lookup_late);
	(void)alarm(http.timeout_s);
	error = fetch_http_open(&http, argv[ARG_HEADERS], argv[ARG_AUTHORITIES], &why);
	(void)alarm(0);
	r = fetch_confine();
	if (r < 0) {
		fprintf(stderr, "dsec-fetch: it cannot be confined: %s\n", strerror(-r));
		return EXIT_FAILURE;
	}
	r = serve(&http, error, why);
	fetch_http_close(&http);
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
