/*
 * A launcher worker: one process, one thread, one channel. It answers requests of its shard in
 * order until the channel ends. Must hold: it is not dumpable from its first instruction on; it
 * keeps nothing of a request; no request ends it, except that it gives up when it cannot return to
 * its own namespaces.
 */
#include "backends/container/worker.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backends/container/kernel.h"
#include "backends/container/netns.h"
#include "backends/container/tty.h"
#include "engine/base/log.h"

void worker_die(const char *what, long error)
{
	log_error("launcher ends: %s err=%s", what, strerrorname_np((int)-error));
	_exit(1);
}

static void order_take_descriptors(struct order *o, struct msghdr *message)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
		size_t bytes = c->cmsg_len - CMSG_LEN(0);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		memcpy(o->descriptors, CMSG_DATA(c), bytes);
		o->descriptor_count = (uint32_t)(bytes / sizeof(int));
	}
}

/* The bytes of the packet, 0 at the end of the channel. */
static ssize_t order_receive(struct worker *w, bool *ret_cut)
{
	char control[CMSG_SPACE(WORKER_DESCRIPTORS_MAX * sizeof(int))]
		__attribute__((aligned(sizeof(size_t))));
	struct iovec parts[2] = {
		{ &w->order.request, sizeof w->order.request },
		{ w->payload, sizeof w->payload },
	};
	struct msghdr message = { .msg_iov = parts,
				  .msg_iovlen = 2,
				  .msg_control = control,
				  .msg_controllen = sizeof control };
	ssize_t bytes;

	do
		bytes = recvmsg(LAUNCH_FD_CHANNEL, &message, MSG_CMSG_CLOEXEC);
	while (bytes < 0 && errno == EINTR);
	if (bytes < 0 && errno == ECONNRESET)
		return 0;
	if (bytes < 0)
		worker_die("cannot read its channel", -errno);
	order_take_descriptors(&w->order, &message);
	*ret_cut = message.msg_flags & (MSG_TRUNC | MSG_CTRUNC);
	return bytes;
}

/* Split the payload into argv, env and the working directory: NULs as announced, none to spare. */
static bool order_split(struct worker *w)
{
	struct launch_request *q = &w->order.request;
	uint32_t strings = q->argument_count + q->environment_count + 1, found = 0;
	char **slot = w->pointers;
	char *at = w->payload + q->limit_count * sizeof(struct launch_limit);
	char *end = w->payload + q->payload_bytes;

	if (q->argument_count == 0 || q->argument_count > LAUNCH_ARGUMENTS_MAX ||
	    q->environment_count > LAUNCH_ARGUMENTS_MAX - q->argument_count)
		return false;
	w->order.argv = slot;
	w->order.envp = slot + q->argument_count + 1;
	for (; found < strings && at < end; found++) {
		char *nul = memchr(at, 0, (size_t)(end - at));

		if (!nul)
			return false;
		if (found == q->argument_count)
			*slot++ = NULL;
		if (found == strings - 1)
			w->order.cwd = at;
		else
			*slot++ = at;
		at = nul + 1;
	}
	slot[0] = slot[1] = NULL; /* the first is HOME's, where it is wanted */
	return found == strings && at == end;
}

/* The limits at the start of the payload, which the strings follow. */
static bool order_limits(struct worker *w)
{
	const struct launch_request *q = &w->order.request;

	w->order.limits = (const struct launch_limit *)(const void *)w->payload;
	if (q->limit_count > LAUNCH_LIMITS_MAX ||
	    q->limit_count * sizeof(struct launch_limit) > q->payload_bytes)
		return false;
	for (uint32_t i = 0; i < q->limit_count; i++)
		if (w->order.limits[i].resource >= LAUNCH_LIMITS_MAX ||
		    w->order.limits[i].reserved ||
		    w->order.limits[i].soft > w->order.limits[i].hard)
			return false;
	return true;
}

static bool order_fits_exec(struct worker *w)
{
	const struct launch_request *q = &w->order.request;
	bool fds = q->flags & LAUNCH_TTY ? q->descriptor_count == 0 :
					   q->descriptor_count == 2 || q->descriptor_count == 3;

	return fds && q->pid > 0 && memchr(q->user, 0, sizeof q->user) && order_limits(w) &&
	       order_split(w);
}

/* The sheet is copied, and its descriptor is out of the way of those that a program gets. */
static bool order_walls(struct worker *w)
{
	struct order *o = &w->order;
	int sheet_fd;
	bool fits;

	o->walls = (struct walls){ 0 };
	if (!(o->request.flags & LAUNCH_WALLS))
		return true;
	if ((o->request.op != LAUNCH_SPAWN && o->request.op != LAUNCH_EXEC &&
	     o->request.op != LAUNCH_NARROW && o->request.op != LAUNCH_BIND) ||
	    o->descriptor_count == 0)
		return false;
	sheet_fd = o->descriptors[--o->descriptor_count];
	o->request.descriptor_count--;
	fits = walls_read(sheet_fd, w->sheet, &o->walls) == 0;
	(void)kernel_close(sheet_fd); /* only read */
	if (!fits)
		w->attempt.step = LAUNCH_STEP_WALLS;
	return fits;
}

static bool order_fits(struct worker *w, size_t bytes)
{
	struct order *o = &w->order;
	struct launch_request *q = &o->request;
	uint32_t fds = q->op == LAUNCH_ATTACH || q->op == LAUNCH_RESIZE ? 1 : 0;

	if (bytes < sizeof *q || q->payload_bytes != bytes - sizeof *q ||
	    q->descriptor_count != o->descriptor_count || !order_walls(w))
		return false;
	if (q->op == LAUNCH_EXEC)
		return order_fits_exec(w);
	if (q->payload_bytes != 0 || q->descriptor_count != fds || q->limit_count != 0)
		return false;
	if (q->op == LAUNCH_NARROW || (q->op == LAUNCH_FINISH && q->flags & LAUNCH_PROVE))
		return q->pid > 0;
	if (q->op == LAUNCH_SIGNAL)
		return q->signal >= 0 && q->signal < _NSIG;
	if (q->op == LAUNCH_PORT_LOOK || q->op == LAUNCH_PORT_CONNECT)
		return q->port > 0 && q->port < 65536;
	if (q->op == LAUNCH_BUILD || (q->op == LAUNCH_SPAWN && q->flags & LAUNCH_REBUILD))
		/* The host's own ids are no range; 0 would be no limit. */
		if (q->uid_base < 65536 || q->uid_base > UINT32_MAX - 65536 || q->disk_bytes == 0 ||
		    q->inodes == 0)
			return false;
	return q->op != LAUNCH_SPAWN || memchr(q->hostname, 0, sizeof q->hostname);
}

static long order_run(struct worker *w)
{
	switch (w->order.request.op) {
	case LAUNCH_ATTACH:
		return image_attach(w);
	case LAUNCH_DETACH:
		return image_detach(w);
	case LAUNCH_BUILD:
		return slot_build(w);
	case LAUNCH_SPAWN:
		return sandbox_spawn(w);
	case LAUNCH_EXEC:
		return program_exec(w);
	case LAUNCH_KILL:
		return cgroup_leaf_kill(w);
	case LAUNCH_SWEEP:
		return slot_sweep(w);
	case LAUNCH_DROP:
		return slot_drop(w);
	case LAUNCH_STAT:
		return slot_stat(w);
	case LAUNCH_SIGNAL:
		return cgroup_leaf_signal(w);
	case LAUNCH_RESIZE:
		return tty_resize(w);
	case LAUNCH_FINISH:
		return program_finish(w);
	case LAUNCH_NARROW:
		return sandbox_narrow(w);
	case LAUNCH_BIND:
		return walls_bind(w);
	case LAUNCH_FREEZE:
		return slot_freeze(w);
	case LAUNCH_THAW:
		return slot_thaw(w);
	case LAUNCH_NETWORK_MAKE:
		return network_make(w);
	case LAUNCH_NETWORK_PROVE:
		return network_prove(w);
	case LAUNCH_NETWORK_DROP:
		return network_drop(w);
	case LAUNCH_PORT_LOOK:
		return port_look(w);
	case LAUNCH_PORT_CONNECT:
		return port_connect(w);
	default:
		w->attempt.step = LAUNCH_STEP_REQUEST;
		return -EINVAL;
	}
}

static void order_answer(struct worker *w, long r)
{
	struct launch_reply *reply = &w->order.reply;
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(sizeof(size_t)))) = { 0 };
	struct iovec part = { reply, sizeof *reply };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	ssize_t bytes;

	reply->tag = w->order.request.tag;
	if (r < 0) {
		reply->error = (int32_t)-r;
		reply->step = w->attempt.step;
	}
	if (w->order.reply_fd >= 0) {
		reply->descriptor_count = 1;
		message.msg_control = control;
		message.msg_controllen = sizeof control;
		*CMSG_FIRSTHDR(&message) = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)),
							     .cmsg_level = SOL_SOCKET,
							     .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &w->order.reply_fd, sizeof(int));
	}
	do
		bytes = sendmsg(LAUNCH_FD_CHANNEL, &message, MSG_NOSIGNAL);
	while (bytes < 0 && errno == EINTR);
	if (w->order.reply_fd >= 0)
		(void)kernel_close(w->order.reply_fd); /* the engine has its own */
	if (bytes < 0 && errno != EPIPE && errno != ECONNRESET)
		worker_die("cannot write to its channel", -errno);
}

/* One request; false at the end of the channel. */
static bool order_serve(struct worker *w)
{
	bool cut;
	ssize_t bytes;
	long r;

	w->order.descriptor_count = 0;
	w->order.reply_fd = -1;
	memset(&w->order.reply, 0, sizeof w->order.reply);
	bytes = order_receive(w, &cut);
	if (bytes == 0 && w->order.descriptor_count == 0)
		return false;
	w->attempt.step = LAUNCH_STEP_REQUEST;
	if ((size_t)bytes < sizeof w->order.request)
		memset((char *)&w->order.request + bytes, 0, sizeof w->order.request - bytes);
	r = cut || !order_fits(w, (size_t)bytes) || !walls_suit(w) ? -EINVAL : order_run(w);
	for (uint32_t i = 0; i < w->order.descriptor_count; i++)
		(void)kernel_close(w->order.descriptors[i]); /* the worker keeps none */
	order_answer(w, r);
	return true;
}

int main(int argc, char **argv)
{
	struct worker *w;

	/* Before anything else: a sandbox that may trace could write into our memory. */
	if (prctl(PR_SET_DUMPABLE, 0) < 0)
		return 1;
	log_open(LOG_INFO, "dsec-launcher");
	if (argc != 4) {
		log_error("the engine starts dsec-launcher, as dsec-launcher SHARD PID ADDRESS");
		return 2;
	}
	w = mmap(NULL, sizeof *w, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (w == MAP_FAILED)
		worker_die("no memory", -errno);
	worker_start(w, atoi(argv[1]), atoi(argv[2]), argv[3]);
	while (order_serve(w))
		;
	_exit(0);
}
