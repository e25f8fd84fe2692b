/*
 * A shard's launcher workers and their queue. Called by the container backend of the shard. A call
 * is done exactly once: with its reply, or with NULL when its worker was lost while it may have
 * been busy with it. A call the lost worker cannot have begun goes back to the head of its queue.
 */
#include "backends/container/team.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/cleanup.h"

enum { GRACE_MS = 2000, STOPPED_MS = 250, DYING_MS = 10 };

static void team_feed(struct team *team);
static void worker_lose(struct worker *w);

void team_init(struct team *team, struct io *io, struct timers *timers, uint64_t *sequence)
{
	*team = (struct team){ .io = io, .timers = timers, .sequence = sequence };
	for (uint32_t i = 0; i < TEAM_WORKERS_MAX; i++)
		team->workers[i] = (struct worker){ .team = team, .fd = -1, .reply_fd = -1 };
}

/*
 * A worker keeps its own limits, so one that has not answered long after them is stuck in the
 * kernel. Its requests must not wait for that to end.
 */
static void worker_late(struct timer *timer);

/* As ps shows it; 0: it is dead, whoever has its pid now. */
static char worker_state(const struct worker *w)
{
	char path[32], text[512] = "", state = 0;
	const char *at;
	int parent = 0;

	(void)snprintf(path, sizeof path, "/proc/%d/stat", w->pid);
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || read(fd, text, sizeof text - 1) <= 0)
		return 0;
	at = strrchr(text, ')');
	if (!at || !strstr(text, "(dsec-launch") || sscanf(at, ") %c %d", &state, &parent) != 2)
		return 0;
	return parent != getpid() || state == 'Z' || state == 'X' ? 0 : state;
}

/* The next look at a worker that is busy: one that answers in time pays nothing. */
static void look_set(struct worker *w, uint64_t at_ns)
{
	w->deadline.expired = worker_late;
	/* There is room: one timer per worker. */
	(void)timer_set(w->team->timers, &w->deadline, at_ns);
}

/*
 * Stopped by somebody, or past its deadline: it is killed. When it is dead its channel is shut
 * down, since the channel does not always tell of the death by itself: a child of the worker's that
 * is stopped on the way to its program still has the worker's end. Not before: what the request
 * began is cleaned up by others then.
 */
static void worker_late(struct timer *timer)
{
	struct worker *w = container_of(timer, struct worker, deadline);
	const uint64_t now_ns = io_now_ns(w->team->io);
	const char state = worker_state(w);

	if (!state) {
		(void)shutdown(w->fd, SHUT_RDWR); /* its recv ends */
		return;
	}
	if (!w->killed && (state == 'T' || now_ns >= w->deadline_ns)) {
		w->killed = true;
		w->team->worker_stuck(w->team->owner, w->pid);
	}
	look_set(w, now_ns + (w->killed ? DYING_MS : STOPPED_MS) * 1000000ull);
}

static void deadline_set(struct worker *w)
{
	timer_clear(w->team->timers, &w->deadline);
	if (!w->call_count)
		return;
	w->deadline_ns = io_now_ns(w->team->io) +
			 (3ull * w->calls[0]->request.limit_ms + GRACE_MS) * 1000000;
	look_set(w, io_now_ns(w->team->io) + STOPPED_MS * 1000000ull);
}

static void call_prepare(struct launch_call *call)
{
	struct launch_request *request = &call->request;
	size_t limit_bytes = request->limit_count * sizeof *call->limits;

	call->parts[0] = (struct iovec){ request, sizeof *request };
	call->parts[1] =
		(struct iovec){ (void *)call->payload, request->payload_bytes - limit_bytes };
	if (limit_bytes) {
		call->parts[2] = call->parts[1];
		call->parts[1] = (struct iovec){ (void *)call->limits, limit_bytes };
	}
	call->message = (struct msghdr){
		.msg_iov = call->parts,
		.msg_iovlen = !request->payload_bytes ? 1 :
			      limit_bytes	      ? 3 :
							2,
	};
	if (!request->descriptor_count)
		return;
	assert(request->descriptor_count <= LAUNCH_CALL_FDS_MAX);
	size_t bytes = request->descriptor_count * sizeof(int);

	call->message.msg_control = call->control.bytes;
	call->message.msg_controllen = CMSG_SPACE(bytes);
	struct cmsghdr *header = CMSG_FIRSTHDR(&call->message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(bytes);
	memcpy(CMSG_DATA(header), call->fds, bytes);
}

static void reply_fd_drop(struct worker *w)
{
	cleanup_close(&w->reply_fd);
	w->reply_fd = -1;
}

/* The oldest request was sent and answered; the completions of the two may come in any order. */
static void worker_settle(struct worker *w)
{
	struct launch_call *call = w->calls[0];
	struct launch_reply reply = w->reply;

	if (!w->replied || !w->sent_count)
		return;
	w->replied = false;
	w->call_count--;
	w->sent_count--;
	w->calls[0] = w->calls[1];
	call->sent = false;
	call->reply_fd = -1;
	if (call->takes_descriptor)
		call->reply_fd = take_fd(&w->reply_fd);
	reply_fd_drop(w);
	deadline_set(w);
	call->done(call, &reply);
}

static void worker_sent(struct io_op *op, int res)
{
	struct worker *w = container_of(op, struct worker, send);

	w->sending = false;
	if (w->broken || res < 0) {
		worker_lose(w);
		return;
	}
	w->sent_count++;
	worker_settle(w);
	team_feed(w->team);
}

/* What it is busy with was not told of it: that would leave its program where the worker is. */
static void worker_move(struct worker *w)
{
	const struct team *team = w->team;

	if (w->is_moved == team->is_moved || w->call_count || !w->has_answered || w->broken)
		return;
	/* One that is not asleep would be waited for. */
	if (worker_state(w) == 'S' &&
	    sched_setaffinity(w->pid, sizeof team->here, &team->here) == 0)
		w->is_moved = team->is_moved; /* else it is tried with the next request */
}

void team_move(struct team *team, const cpu_set_t *cpus, bool is_away)
{
	team->here = *cpus;
	team->is_moved = is_away;
	for (uint32_t i = 0; i < TEAM_WORKERS_MAX; i++)
		if (team->workers[i].fd >= 0)
			worker_move(&team->workers[i]);
}

static void worker_send(struct worker *w)
{
	struct launch_call *call = w->calls[w->sent_count];
	const bool starts = call->request.op == LAUNCH_EXEC || call->request.op == LAUNCH_SPAWN;

	call->request.flags &= ~(uint32_t)LAUNCH_WIDE;
	if (w->is_moved && starts)
		call->request.flags |= LAUNCH_WIDE;

	call->sequence = ++*w->team->sequence;
	call->sent = true;
	call_prepare(call);
	w->sending = true;
	w->send.done = worker_sent;
	io_sendmsg(w->team->io, &w->send, w->fd, &call->message);
}

static bool reply_is_sane(const struct launch_reply *reply)
{
	return reply->error >= 0 && reply->error < 4096 && reply->pid >= 0 &&
	       reply->step < LAUNCH_STEP_COUNT && reply->limit < LAUNCH_LIMITS_MAX;
}

/* Room was given for one: what is more than that the kernel has closed. */
static void reply_fd_take(struct worker *w)
{
	struct cmsghdr *header = CMSG_FIRSTHDR(&w->reply_message);

	if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
	    header->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(&w->reply_fd, CMSG_DATA(header), sizeof(int));
}

static void worker_replied(struct io_op *op, int res)
{
	struct worker *w = container_of(op, struct worker, recv);
	struct launch_call *call = w->calls[0];

	w->receiving = false;
	if (res >= 0)
		reply_fd_take(w);
	if (w->broken || res != sizeof w->reply || !w->call_count || !call->sent ||
	    w->reply.tag != call->request.tag || !reply_is_sane(&w->reply)) {
		worker_lose(w);
		return;
	}
	w->replied = w->has_answered = true;
	worker_settle(w);
	team_feed(w->team);
}

static void worker_listen(struct worker *w)
{
	w->receiving = true;
	w->recv.done = worker_replied;
	w->reply_part = (struct iovec){ &w->reply, sizeof w->reply };
	w->reply_message = (struct msghdr){ .msg_iov = &w->reply_part,
					    .msg_iovlen = 1,
					    .msg_control = w->reply_control.bytes,
					    .msg_controllen = sizeof w->reply_control };
	io_recvmsg(w->team->io, &w->recv, w->fd, &w->reply_message);
}

static void queue_put_first(struct team *team, struct launch_call *call)
{
	call->queued = true;
	call->sent = false;
	turns_add_first(&team->queue[call->class], &call->turn, call->whose);
	team->waiting++;
}

/* Waits until neither op is in flight, then gives up the worker and settles its calls. */
static void worker_lose(struct worker *w)
{
	struct team *team = w->team;
	struct launch_call *doubtful = NULL;

	w->broken = true;
	if (w->receiving)
		io_cancel(team->io, &w->recv);
	if (w->sending)
		io_cancel(team->io, &w->send);
	if (w->receiving || w->sending || w->fd < 0)
		return;
	timer_clear(team->timers, &w->deadline);
	reply_fd_drop(w);
	cleanup_close(&w->fd);
	w->fd = -1;
	if (w->call_count == 2)
		queue_put_first(team, w->calls[1]);
	if (w->call_count)
		doubtful = w->calls[0];
	w->call_count = w->sent_count = 0;
	if (!team->closing) {
		team->lost++;
		team->worker_lost(team->owner);
	}
	if (doubtful) {
		doubtful->sent = false;
		doubtful->reply_fd = -1;
		doubtful->done(doubtful, NULL);
	}
	team_feed(team);
}

static struct launch_call *queue_take(struct team *team)
{
	for (uint32_t i = 0; i < TEAM_CLASS_COUNT; i++) {
		struct turn *turn = turns_take(&team->queue[i]);
		struct launch_call *call;

		if (!turn)
			continue;
		call = container_of(turn, struct launch_call, turn);
		call->queued = false;
		team->waiting--;
		return call;
	}
	return NULL;
}

static struct worker *worker_least_busy(struct team *team)
{
	struct worker *best = NULL;

	for (uint32_t i = 0; i < TEAM_WORKERS_MAX; i++) {
		struct worker *w = &team->workers[i];

		if (w->fd < 0 || w->broken || w->sending || w->call_count == TEAM_DEPTH)
			continue;
		if (!best || w->call_count < best->call_count)
			best = w;
	}
	return best;
}

static void team_feed(struct team *team)
{
	struct worker *w;

	for (uint32_t i = 0; i < TEAM_WORKERS_MAX; i++) {
		w = &team->workers[i];
		if (w->fd >= 0 && !w->broken && !w->receiving && !w->replied)
			worker_listen(w);
	}
	while (team->waiting && (w = worker_least_busy(team))) {
		worker_move(w);
		w->calls[w->call_count++] = queue_take(team);
		if (w->call_count == 1)
			deadline_set(w);
		worker_send(w);
	}
}

void team_add(struct team *team, int channel_fd, int pid, struct launch_call *first)
{
	for (uint32_t i = 0; i < TEAM_WORKERS_MAX; i++) {
		struct worker *w = &team->workers[i];

		if (w->fd >= 0 || w->receiving || w->sending)
			continue;
		w->fd = channel_fd;
		w->pid = pid;
		w->broken = w->replied = w->killed = w->has_answered = w->is_moved = false;
		if (first) {
			first->request.tag = (uint64_t)(uintptr_t)first;
			w->calls[w->call_count++] = first;
			deadline_set(w);
			worker_send(w);
		}
		team_feed(team);
		return;
	}
	if (first)
		first->done(first, NULL);
	(void)close(channel_fd); /* one more than there is room for: it ends at once */
}

void team_call(struct team *team, struct launch_call *call)
{
	assert(!call->queued);
	assert(!call->sent);
	call->request.tag = (uint64_t)(uintptr_t)call;
	call->queued = true;
	turns_add(&team->queue[call->class], &call->turn, call->whose);
	team->waiting++;
	team_feed(team);
}

static void call_is_due(struct timer *timer)
{
	struct launch_call *call = container_of(timer, struct launch_call, later);

	team_call(call->team, call);
}

void team_call_later(struct team *team, struct launch_call *call)
{
	enum { PAUSE_MS = 100, DOUBLINGS_MAX = 6, LOOK_MS = 50 };
	uint64_t pause_ms = (uint64_t)PAUSE_MS
			    << (call->tries < DOUBLINGS_MAX ? call->tries : DOUBLINGS_MAX);

	call->tries++;
	call->team = team;
	call->request.limit_ms = LOOK_MS;
	call->later.expired = call_is_due;
	if (timer_set(team->timers, &call->later, io_now_ns(team->io) + pause_ms * 1000000) < 0)
		team_call(team, call);
}

bool team_withdraw(struct team *team, struct launch_call *call)
{
	if (!call->queued)
		return false;
	turns_remove(&team->queue[call->class], &call->turn);
	call->queued = false;
	team->waiting--;
	return true;
}

uint32_t team_workers(const struct team *team)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < TEAM_WORKERS_MAX; i++)
		count += team->workers[i].fd >= 0;
	return count;
}

void team_pass_on(struct team *team, struct team *to)
{
	struct launch_call *call;

	while ((call = queue_take(team)))
		team_call(to, call);
}

bool team_is_idle(const struct team *team)
{
	for (uint32_t i = 0; i < TEAM_WORKERS_MAX; i++)
		if (team->workers[i].call_count)
			return false;
	return !team->waiting;
}

void team_close(struct team *team)
{
	team->closing = true;
	for (uint32_t i = 0; i < TEAM_WORKERS_MAX; i++)
		if (team->workers[i].fd >= 0)
			(void)shutdown(team->workers[i].fd, SHUT_RDWR); /* its recv ends */
}
