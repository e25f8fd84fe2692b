/*
 * Asking dsec-fetch. Called by dsec-store pull. Must hold: whatever it answers, no more is read
 * than was asked for, texts of it are cut and plain, and nobody waits without end.
 */
#include "backends/store/fetch.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "backends/image.h"
#include "engine/base/cleanup.h"

/* Beyond what bounds dsec-fetch: a name is looked up, then a piece read, then it has failed. */
enum { GRACE_S = 30 };

/* ---- its process ---- */

static int wait_bound(int fd, const char *timeout_s)
{
	const struct timeval most = { .tv_sec = 2 * strtol(timeout_s, NULL, 10) + GRACE_S };

	return setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most) < 0 ? -errno : 0;
}

/* It has the socket, the scratch as a place to be confined to, and standard error. */
static int process_start(const struct fetch_wish *wish, int its_fd)
{
	const char *const argv[] = { "dsec-fetch",	 wish->address,		 wish->timeout_s,
				     wish->headers_path, wish->authorities_path, NULL };
	char *environment[] = { NULL };
	posix_spawn_file_actions_t actions;
	pid_t pid;
	int r = -posix_spawn_file_actions_init(&actions);

	if (r < 0)
		return r;
	r = -posix_spawn_file_actions_adddup2(&actions, its_fd, FETCH_FD);
	if (r >= 0)
		r = -posix_spawn_file_actions_addclose(&actions, IMAGE_FD_STATUS);
	if (r >= 0)
		r = -posix_spawn_file_actions_addclosefrom_np(&actions, IMAGE_FD_IMAGES);
	if (r >= 0) /* execve() changes no argument: its type is older than const */
		r = -posix_spawn(&pid, wish->program_path, &actions, NULL, (char *const *)argv,
				 environment);
	(void)posix_spawn_file_actions_destroy(&actions);
	return r;
}

int fetch_start(const struct fetch_wish *wish, struct fetch *ret)
{
	int ends[2], r;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return -errno;
	auto_close int ours = ends[0];
	auto_close int its = ends[1];
	r = wait_bound(ours, wish->timeout_s);
	if (r >= 0)
		r = process_start(wish, its);
	if (r < 0)
		return r;
	*ret = (struct fetch){ .fd = take_fd(&ours) };
	return 0;
}

/* ---- questions and answers ---- */

static int socket_read(struct fetch *fetch, void *ret, size_t count, const char **ret_why)
{
	size_t got = 0;

	while (got < count) {
		ssize_t n = read(fetch->fd, (char *)ret + got, count - got);

		if (n < 0 && errno == EINTR)
			continue;
		*ret_why = n < 0 ? "dsec-fetch answers no more" :
				   "dsec-fetch has ended: see the log";
		if (n < 0)
			return errno == EAGAIN ? -ETIMEDOUT : -errno;
		if (!n)
			return -EPIPE;
		got += (size_t)n;
	}
	*ret_why = NULL;
	return 0;
}

static int ask(struct fetch *fetch, const struct fetch_ask *ask, const char **ret_why)
{
	ssize_t n;

	*ret_why = "dsec-fetch has ended: see the log";
	while ((n = write(fetch->fd, ask, sizeof *ask)) < 0 && errno == EINTR)
		;
	fetch->left = 0;
	fetch->total = 0;
	if (n != (ssize_t)sizeof *ask)
		return n < 0 ? -errno : -EPIPE;
	*ret_why = NULL;
	return 0;
}

static void why_take(struct fetch *fetch, const struct fetch_piece *piece)
{
	for (size_t i = 0; i < sizeof fetch->why; i++)
		fetch->why[i] = piece->why[i] && (piece->why[i] < 32 || piece->why[i] > 126) ?
					'?' :
					piece->why[i];
	fetch->why[sizeof fetch->why - 1] = 0;
}

static int piece_begin(struct fetch *fetch, const char **ret_why)
{
	struct fetch_piece piece;
	int r = socket_read(fetch, &piece, sizeof piece, ret_why);

	if (r < 0)
		return r;
	if (piece.error) {
		why_take(fetch, &piece);
		*ret_why = fetch->why;
		return piece.error > 0 && piece.error < 4096 ? -piece.error : -EIO;
	}
	*ret_why = "dsec-fetch answers nonsense";
	if (!piece.bytes || piece.bytes > FETCH_PIECE_BYTES)
		return -EPROTO;
	*ret_why = NULL;
	fetch->left = piece.bytes;
	fetch->total = piece.total;
	return 0;
}

int fetch_read(struct fetch *fetch, void *ret, size_t count, const char **ret_why)
{
	char *at = ret;
	int r = 0;

	while (r >= 0 && count) {
		size_t taken = count < fetch->left ? count : fetch->left;

		if (!fetch->left) {
			r = piece_begin(fetch, ret_why);
			continue;
		}
		r = socket_read(fetch, at, taken, ret_why);
		at += taken;
		count -= taken;
		fetch->left -= (uint32_t)taken;
	}
	return r;
}

int fetch_blob(struct fetch *fetch, const uint8_t digest[DIGEST_BYTES], uint64_t bytes,
	       const char **ret_why)
{
	struct fetch_ask wanted = { .what = FETCH_BLOB, .bytes = bytes };

	memcpy(wanted.digest, digest, DIGEST_BYTES);
	return ask(fetch, &wanted, ret_why);
}

int fetch_index(struct fetch *fetch, size_t max, char **ret, size_t *ret_bytes,
		const char **ret_why)
{
	const struct fetch_ask wanted = { .what = FETCH_INDEX, .bytes = max };
	auto_free char *text = malloc(max + 1);
	int r = text ? ask(fetch, &wanted, ret_why) : -ENOMEM;

	if (r >= 0)
		r = piece_begin(fetch, ret_why);
	if (r < 0)
		return r;
	*ret_why = "dsec-fetch answers nonsense";
	if (fetch->total > max)
		return -EPROTO;
	*ret_bytes = (size_t)fetch->total;
	r = fetch_read(fetch, text, *ret_bytes, ret_why);
	if (r < 0)
		return r;
	text[*ret_bytes] = 0;
	*ret = take_ptr(text);
	return 0;
}
