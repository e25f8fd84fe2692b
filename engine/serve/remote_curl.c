/*
 * Drives libcurl by a shard's ring. Called by the HTTP remote, by the loop and, through the two
 * callbacks, by libcurl.
 *
 * Must hold: libcurl is entered from the loop only and never from within a callback of its own; a
 * watch lives until its poll is over, and means nothing once libcurl has forgotten its socket.
 */
#include "engine/serve/remote_curl.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>

#include "engine/base/cleanup.h"
#include "engine/base/io.h"
#include "engine/serve/remote.h"

#define NS_PER_MS 1000000ull

/* Of a shard, one for each read: else one that somebody waits for is behind those of lists. */
enum { CONNECTIONS_MAX = REMOTE_FLIGHTS };

/* A socket that libcurl waits for. */
struct watch {
	struct io_op op;
	struct remote_curl *curl;
	int fd;
	uint32_t wanted, armed; /* events; 0: none */
	bool is_busy;		/* libcurl is told of it just now */
	bool is_forgotten;
};

static void watch_arm(struct watch *watch);

/* What ended in the last call. */
static void ended_take(struct remote_curl *curl)
{
	CURLMsg *message;
	int left;

	while ((message = curl_multi_info_read(curl->multi, &left))) {
		CURL *easy = message->easy_handle;
		const CURLcode code = message->data.result;

		if (message->msg != CURLMSG_DONE)
			continue;
		(void)curl_multi_remove_handle(curl->multi, easy); /* is in it */
		curl->ended(curl, easy, code);
	}
}

static void curl_act(struct remote_curl *curl, curl_socket_t fd, int what)
{
	int running;

	/* It fails for want of memory only, and transfers then end by their bound of time. */
	(void)curl_multi_socket_action(curl->multi, fd, what, &running);
	ended_take(curl);
}

/* ---- sockets ---- */

static void watch_told(struct io_op *op, int res)
{
	struct watch *watch = container_of(op, struct watch, op);
	int what = 0;

	watch->armed = 0;
	if (!watch->is_forgotten && res != -ECANCELED) {
		if (res < 0 || res & (POLLERR | POLLNVAL))
			what = CURL_CSELECT_ERR;
		if (res > 0 && res & (POLLIN | POLLHUP))
			what |= CURL_CSELECT_IN;
		if (res > 0 && res & POLLOUT)
			what |= CURL_CSELECT_OUT;
		watch->is_busy = true;
		curl_act(watch->curl, watch->fd, what);
		watch->is_busy = false;
	}
	if (watch->is_forgotten)
		free(watch);
	else
		watch_arm(watch);
}

static void watch_arm(struct watch *watch)
{
	if (watch->is_busy || watch->armed == watch->wanted)
		return;
	if (watch->armed) { /* and again when that is over */
		io_cancel(watch->curl->io, &watch->op);
		return;
	}
	watch->armed = watch->wanted;
	watch->op.done = watch_told;
	io_poll_once(watch->curl->io, &watch->op, watch->fd, watch->wanted);
}

static void watch_forget(struct watch *watch)
{
	watch->is_forgotten = true;
	if (watch->armed)
		io_cancel(watch->curl->io, &watch->op);
	else if (!watch->is_busy)
		free(watch);
}

static int socket_changed(CURL *easy, curl_socket_t fd, int what, void *owner, void *assigned)
{
	struct remote_curl *curl = owner;
	struct watch *watch = assigned;

	(void)easy;
	if (what == CURL_POLL_REMOVE) {
		if (watch)
			watch_forget(watch);
		return 0;
	}
	if (!watch) {
		watch = calloc(1, sizeof *watch);
		if (!watch)
			return -1;
		watch->curl = curl;
		watch->fd = fd;
		(void)curl_multi_assign(curl->multi, fd, watch); /* knows the socket */
	}
	watch->wanted = (what & CURL_POLL_IN ? POLLIN : 0) | (what & CURL_POLL_OUT ? POLLOUT : 0);
	watch_arm(watch);
	return 0;
}

/* ---- time ---- */

static void time_passed(struct timer *timer)
{
	curl_act(container_of(timer, struct remote_curl, timer), CURL_SOCKET_TIMEOUT, 0);
}

static int time_changed(CURLM *multi, long ms, void *owner)
{
	struct remote_curl *curl = owner;

	(void)multi;
	if (ms < 0) {
		timer_clear(curl->timers, &curl->timer);
		return 0;
	}
	return timer_set(curl->timers, &curl->timer,
			 io_now_ns(curl->io) + (uint64_t)ms * NS_PER_MS);
}

/* ---- as a whole ---- */

int remote_curl_open(struct remote_curl *curl)
{
	const curl_version_info_data *version;

	if (curl_global_init(CURL_GLOBAL_DEFAULT))
		return -ENOMEM;
	version = curl_version_info(CURLVERSION_NOW);
	if (!(version->features & CURL_VERSION_ASYNCHDNS) ||
	    !(version->features & CURL_VERSION_THREADSAFE)) {
		curl_global_cleanup();
		return -ENOTSUP;
	}
	curl->multi = curl_multi_init();
	if (!curl->multi) {
		curl_global_cleanup();
		return -ENOMEM;
	}
	curl->timer.expired = time_passed;
	/* Options that every libcurl that we build with has. */
	(void)curl_multi_setopt(curl->multi, CURLMOPT_SOCKETFUNCTION, socket_changed);
	(void)curl_multi_setopt(curl->multi, CURLMOPT_SOCKETDATA, curl);
	(void)curl_multi_setopt(curl->multi, CURLMOPT_TIMERFUNCTION, time_changed);
	(void)curl_multi_setopt(curl->multi, CURLMOPT_TIMERDATA, curl);
	(void)curl_multi_setopt(curl->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, (long)CONNECTIONS_MAX);
	(void)curl_multi_setopt(curl->multi, CURLMOPT_MAXCONNECTS, (long)CONNECTIONS_MAX);
	return 0;
}

void remote_curl_close(struct remote_curl *curl)
{
	(void)curl_multi_cleanup(curl->multi); /* its connections are closed */
	timer_clear(curl->timers, &curl->timer);
	curl_global_cleanup();
}
