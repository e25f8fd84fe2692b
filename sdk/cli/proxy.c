/*
 * `dsec proxy`: the far end of an address ssh:HOST. Called by main.c. It joins stdin and stdout to
 * an engine's socket and knows nothing of what goes through; each direction goes on while the other
 * one is stuck, and what ends on one side ends on the other.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/streams.h"
#include "sdk/cli/session.h"
#include "sdk/cli/verbs.h"

enum { PIECE_BYTES = 64 << 10 };

static int engine_connect(const char *path, int *ret_fd)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	auto_close int fd = -1;

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, strlen(path));
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	*ret_fd = fd;
	fd = -1;
	return 0;
}

struct way {
	int from, to;
	char piece[PIECE_BYTES];
};

/* Until the end of one side, or a failure of either. */
static void way_go(struct way *way)
{
	ssize_t bytes;

	while ((bytes = stream_read(way->from, way->piece, sizeof(way->piece))) > 0) {
		if (stream_put(way->to, way->piece, (size_t)bytes) < 0)
			return;
	}
}

static void *inward_run(void *argument)
{
	struct way *way = argument;

	way_go(way);
	(void)shutdown(way->to, SHUT_WR); /* it fails where the engine is gone */
	return NULL;
}

/*
 * Ends when the engine does, or who reads our stdout. The thread may sleep then for ever, on an
 * stdin that nobody closes: it ends with the process, and so do its descriptor and its memory.
 */
static int join(int fd)
{
	auto_free struct way *outward = malloc(sizeof(*outward));
	struct way *inward = malloc(sizeof(*inward));
	pthread_t thread;
	int r = inward && outward ? 0 : -ENOMEM;

	if (r == 0) {
		inward->from = STDIN_FILENO;
		inward->to = outward->from = fd;
		outward->to = STDOUT_FILENO;
		r = -pthread_create(&thread, NULL, inward_run, inward);
	}
	if (r < 0) {
		free(inward);
		return r;
	}
	(void)pthread_detach(thread); /* it was made so that this cannot fail */
	way_go(outward);
	return 0;
}

static int proxy(struct session *session, const char *path)
{
	char text[256];
	int fd = -1, r;

	r = engine_connect(path, &fd);
	if (r == 0)
		r = join(fd);
	if (r == 0)
		return 0;
	(void)snprintf(text, sizeof(text), "proxy: no engine at %.120s: %s", path,
		       strerror(-r)); /* cut is fine */
	return session_fail_error(session, r, "connect", text);
}

int verb_proxy(const struct options *options)
{
	struct session session = { .options = options };
	const char *path = options->argument_count ? options->arguments[0] :
						     session_address(options);
	int status;

	if (!strncmp(path, "unix:", 5))
		path += 5;
	if (options->argument_count > 1 || *path != '/')
		status = session_refuse(&session, "proxy wants the path of a socket here");
	else
		status = proxy(&session, path);
	return session_end(&session, status);
}
