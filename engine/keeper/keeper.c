/*
 * Owns the keeper's life: the instance, one engine at a time, the orphans it leaves and the
 * descriptors it parks. Called by main.c. One thread, one poll, no policy: what an engine does is
 * none of its business, and nothing an engine sends can stop it. It must hold that the keeper never
 * blocks but in poll(2), and that at most one engine of an instance lives.
 */
#include "engine/keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/config.h"
#include "engine/config_fit.h"
#include "engine/engine.h"
#include "engine/keeper/instance.h"
#include "engine/keeper/keeper_wire.h"
#include "engine/keeper/orphans.h"
#include "engine/keeper/remains.h"
#include "engine/keeper/sweep.h"

enum {
	STEADY_MS = 30 * 1000, /* an engine that lived this long starts the back-off anew */
	REQUESTS_PER_TURN = 64,
	LOOK_MS = 2000, /* between two looks at whether the engine is dead and does not end */
};

struct keeper {
	const struct config *config;
	struct instance instance;
	struct orphans orphans;
	struct parking parking;
	sigset_t mask_before;
	int signal_fd;
	int engine_pid;						    /* 0: none lives */
	int engine_pidfd, channel_fd;				    /* -1: none lives */
	uint64_t started_ms, restart_at_ms, kill_at_ms, look_at_ms; /* UINT64_MAX: never */
	uint32_t backoff_ms;
	bool half_dead; /* the last look found it so */
	bool crashed;	/* the last engine did not end by itself */
	bool reaped;	/* the engine was; engine_ended() is due */
	int engine_status;
	bool stopping;
	int stop_signal; /* the last one passed on */
	bool ended;
	int status; /* dsecd's, once ended */
};

static const struct instance_places places = { .run = "/run/dsec" };

static int host_check(void);
static int keeper_open(struct keeper *k);
static void keeper_turn(struct keeper *k);
static int keeper_close(struct keeper *k);
static void engine_start(struct keeper *k);
static void engine_ended(struct keeper *k);
static void engine_look(struct keeper *k);
static void signals_read(struct keeper *k);
static void children_reap(struct keeper *k);
static bool channel_serve(struct keeper *k);

int keeper_run(struct config *config)
{
	struct keeper k = {
		.config = config,
		.signal_fd = -1,
		.engine_pidfd = -1,
		.channel_fd = -1,
		.kill_at_ms = UINT64_MAX,
		.look_at_ms = UINT64_MAX,
		.backoff_ms = KEEPER_BACKOFF_FIRST_MS,
	};
	int r;

	if (host_check() < 0 || config_check(config) < 0)
		return KEEPER_EXIT_REFUSED;
	r = instance_open(&k.instance, config, &places);
	if (r < 0)
		return KEEPER_EXIT_REFUSED;
	if (config->lifeline_fd >= 0) /* a private engine */
		remains_sweep(config, &places);
	r = keeper_open(&k);
	if (r < 0) {
		log_error("keeper: %s", strerrordesc_np(-r));
		k.status = 1;
		k.ended = true;
	}
	while (!k.ended)
		keeper_turn(&k);
	return keeper_close(&k);
}

static int host_check(void)
{
	struct utsname host;

	(void)uname(&host); /* cannot fail */
	if (machine_kernel_check(host.release) < 0) {
		log_error(
			"Linux %s is too old, 6.12 is needed: use Debian 13, or Debian 12 with the"
			" backports kernel",
			host.release);
		return -ENOSYS;
	}
	if (geteuid() != 0) {
		log_error("dsecd must be started by root");
		return -EPERM;
	}
	return 0;
}

static uint64_t now_ms(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail */
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static int keeper_open(struct keeper *k)
{
	sigset_t mask;
	int r;

	r = orphans_init(&k->orphans);
	if (r < 0)
		return r;
	r = parking_init(&k->parking);
	if (r < 0)
		return r;
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
		return -errno;
	/* Standard error may be a pipe whose reader ended. */
	if (signal(SIGPIPE, SIG_IGN) == SIG_ERR)
		return -errno;
	sigemptyset(&mask);
	sigaddset(&mask, SIGCHLD);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGHUP);
	if (sigprocmask(SIG_BLOCK, &mask, &k->mask_before) < 0)
		return -errno;
	k->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	return k->signal_fd < 0 ? -errno : 0;
}

static struct engine_handover handover_of(const struct keeper *k, int channel_fd)
{
	struct engine_handover handover = {
		.cgroup_fd = k->instance.cgroup_fd,
		.keeper_fd = channel_fd,
		.uid_first = k->instance.uid_first,
	};

	for (int i = 0; i < TENANTS_MAX; i++)
		handover.listen_fds[i] = k->instance.sockets[i].fd;
	return handover;
}

/* In a process of its own, which may crash or wait like the engine it cleans up after. */
static void engine_clean_up(struct keeper *k)
{
	const struct engine_handover handover = handover_of(k, -1);
	int status = 0, pid = fork();

	if (pid == 0)
		_exit(engine_sweep(k->config, &handover) < 0);
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
		log_error("what the last engine left could not be removed");
		k->status = 1;
	}
}

static int keeper_close(struct keeper *k)
{
	if (k->crashed)
		engine_clean_up(k);
	if (k->orphans.ring)
		children_reap(k); /* so that only the living are called left */
	if (instance_close(&k->instance, &places) < 0)
		k->status = 1;
	if (k->signal_fd >= 0)
		(void)close(k->signal_fd); /* we end */
	parking_done(&k->parking);
	orphans_done(&k->orphans);
	return k->status;
}

/* How long poll may wait: until the next restart, the SIGKILL or the next look. */
static int timeout_ms(const struct keeper *k)
{
	uint64_t at = k->engine_pid ? k->kill_at_ms : k->restart_at_ms, now = now_ms();

	if (k->engine_pid && k->look_at_ms < at)
		at = k->look_at_ms;
	if (at == UINT64_MAX)
		return -1;
	if (at <= now)
		return 0;
	return at - now > INT_MAX ? INT_MAX : (int)(at - now);
}

static void keeper_turn(struct keeper *k)
{
	struct pollfd fds[] = {
		{ .fd = k->signal_fd, .events = POLLIN },
		{ .fd = k->channel_fd, .events = POLLIN },
	};

	if (!k->engine_pid && k->restart_at_ms <= now_ms()) {
		engine_start(k);
		return;
	}
	if (k->engine_pid && k->kill_at_ms <= now_ms()) {
		log_error("engine %d did not end within %" PRIu32 " s: killed", k->engine_pid,
			  k->config->stop_timeout_s);
		(void)pidfd_send_signal(k->engine_pidfd, SIGKILL, NULL, 0); /* or it just ended */
		k->kill_at_ms = UINT64_MAX;
	}
	if (k->engine_pid && k->look_at_ms <= now_ms())
		engine_look(k);
	if (poll(fds, 2, timeout_ms(k)) < 0 && errno != EINTR)
		log_error("keeper: poll: %s, continuing", strerrordesc_np(errno));
	if (fds[1].revents)
		(void)channel_serve(k); /* what is left wakes the next turn */
	if (fds[0].revents)
		signals_read(k);
	if (k->reaped)
		engine_ended(k);
}

/* ---- the engine ---- */

/* In the child: nothing of the keeper's but what is handed over. */
static _Noreturn void engine_child(struct keeper *k, int channel_fd, int keeper_pid)
{
	static const int defaults[] = { SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGPIPE };
	const struct engine_handover handover = handover_of(k, channel_fd);
	sigset_t mask = k->mask_before;

	if (prctl(PR_SET_PDEATHSIG, SIGTERM) < 0 || getppid() != keeper_pid)
		_exit(KEEPER_EXIT_RESTART);
	/* Parked descriptors here too would keep pipes open for ever. */
	parking_done(&k->parking);
	orphans_done(&k->orphans);
	(void)close(k->signal_fd); /* the keeper's */
	for (size_t i = 0; i < sizeof(defaults) / sizeof(defaults[0]); i++)
		(void)signal(defaults[i], SIG_DFL); /* valid signals */
	sigaddset(&mask, SIGHUP); /* until it is listened for: it must not end what starts */
	(void)sigprocmask(SIG_SETMASK, &mask, NULL); /* else as it was */
	exit(engine_run(k->config, &handover));
}

static void engine_backoff(struct keeper *k)
{
	k->restart_at_ms = now_ms() + k->backoff_ms;
	k->backoff_ms *= 2;
	if (k->backoff_ms > KEEPER_BACKOFF_LAST_MS)
		k->backoff_ms = KEEPER_BACKOFF_LAST_MS;
}

static int engine_fork(struct keeper *k, int ours, int theirs)
{
	int keeper_pid = getpid(), pid;

	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		(void)close(ours); /* the keeper's end */
		engine_child(k, theirs, keeper_pid);
	}
	k->engine_pidfd = pidfd_open(pid, 0);
	if (k->engine_pidfd < 0) {
		int r = -errno;

		/* Not reaped yet, so the number is still its own. */
		(void)kill(pid, SIGKILL);
		return r;
	}
	k->half_dead = false;
	k->look_at_ms = now_ms() + LOOK_MS;
	return pid;
}

/* Its main thread is gone, and others are not: no wait and no pidfd tells of that. */
static bool engine_is_half_dead(const struct keeper *k)
{
	char path[32], text[256];
	const char *state;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/stat", k->engine_pid);
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = '\0';
	state = strrchr(text, ')');
	return state && !strncmp(state, ") Z", 3);
}

/*
 * A dead engine's threads go at once, but for one that waits in the kernel for what a program in a
 * sandbox holds, such as the lock of a pipe: no signal ends that. So the program goes; no sandbox
 * outlives its engine anyway.
 */
static void engine_look(struct keeper *k)
{
	bool was_half_dead = k->half_dead;

	children_reap(k);
	k->half_dead = !k->reaped && engine_is_half_dead(k);
	k->look_at_ms = now_ms() + LOOK_MS;
	if (!k->half_dead || !was_half_dead)
		return;
	log_warning("engine %d is dead and does not end: its sandboxes are ended", k->engine_pid);
	sweep_kill(k->instance.cgroup_fd);
}

static void engine_start(struct keeper *k)
{
	auto_close int ours = -1, theirs = -1;
	int pair[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
		r = -errno;
	} else {
		ours = pair[0];
		theirs = pair[1];
		r = engine_fork(k, ours, theirs);
	}
	if (r < 0) {
		log_error("engine could not be started: %s; again in %" PRIu32 " ms",
			  strerrordesc_np(-r), k->backoff_ms);
		engine_backoff(k);
		return;
	}
	k->engine_pid = r;
	k->channel_fd = take_fd(&ours);
	k->started_ms = now_ms();
	log_info("engine %d of instance %s started", r, k->instance.name);
}

static void engine_told(const struct keeper *k, int status, const char *then)
{
	if (WIFSIGNALED(status))
		log_error("engine %d died by SIG%s: %s", k->engine_pid,
			  sigabbrev_np(WTERMSIG(status)) ? sigabbrev_np(WTERMSIG(status)) : "?",
			  then);
	else
		log_line(WEXITSTATUS(status) ? LOG_ERROR : LOG_INFO,
			 "engine %d ended with status %d: %s", k->engine_pid, WEXITSTATUS(status),
			 then);
}

/* dsecd's status when this was the last engine. */
static int engine_status(const struct keeper *k, int status)
{
	if (!WIFSIGNALED(status))
		return WEXITSTATUS(status);
	/* Asked to stop before it listened for that: it had started nothing. */
	return k->stopping && WTERMSIG(status) == k->stop_signal ? 0 : 1;
}

/* Here it is decided whether there will be another. */
static void engine_ended(struct keeper *k)
{
	int status = k->engine_status;
	bool again = WIFSIGNALED(status) || WEXITSTATUS(status) == KEEPER_EXIT_RESTART;
	char then[48];

	k->crashed = WIFSIGNALED(status) || WEXITSTATUS(status) != 0;
	while (channel_serve(k))
		; /* what it parked as its last act */
	if (now_ms() - k->started_ms >= STEADY_MS)
		k->backoff_ms = KEEPER_BACKOFF_FIRST_MS;
	if (again && !k->stopping) {
		snprintf(then, sizeof(then), "another in %" PRIu32 " ms", k->backoff_ms);
		engine_told(k, status, then);
		engine_backoff(k);
	} else {
		engine_told(k, status, "the keeper ends");
		k->ended = true;
		k->status = engine_status(k, status);
	}
	k->reaped = false;
	k->engine_pid = 0;
	(void)close(k->engine_pidfd); /* only a handle */
	k->engine_pidfd = -1;
	k->look_at_ms = UINT64_MAX;
	if (k->channel_fd >= 0)
		(void)close(k->channel_fd); /* was drained */
	k->channel_fd = -1;
}

/* ---- signals and children ---- */

static void stop_ask(struct keeper *k, int signal)
{
	if (!k->engine_pid) {
		k->ended = true;
		return;
	}
	if (!k->stopping)
		k->kill_at_ms = now_ms() + k->config->stop_timeout_s * 1000ull;
	k->stopping = true;
	k->stop_signal = signal;
	(void)pidfd_send_signal(k->engine_pidfd, signal, NULL, 0); /* or it just ended */
}

static void signals_read(struct keeper *k)
{
	struct signalfd_siginfo info;

	while (read(k->signal_fd, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT)
			stop_ask(k, (int)info.ssi_signo);
		else if (info.ssi_signo == SIGHUP && k->engine_pid)
			(void)pidfd_send_signal(k->engine_pidfd, SIGHUP, NULL, 0); /* or it ended */
		/* SIGCHLD is below. */
	}
	children_reap(k);
}

static void children_reap(struct keeper *k)
{
	struct timespec now;
	int pid, status;

	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail */
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		const struct orphan orphan = {
			.pid = pid,
			.status = status,
			.time_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec,
		};

		if (pid == k->engine_pid) {
			k->reaped = true;
			k->engine_status = status;
		} else {
			orphans_add(&k->orphans, &orphan);
		}
	}
}

/* ---- what the engine asks ---- */

static int request_ask(struct keeper *k, const struct keeper_request *request,
		       struct keeper_reply *reply)
{
	const struct orphan *orphan;

	/* A pidfd may have told the engine before SIGCHLD told us. */
	children_reap(k);
	orphan = orphans_find(&k->orphans, request->pid);
	if (!orphan)
		return -ENOENT;
	reply->status = orphan->status;
	reply->time_ns = orphan->time_ns;
	return 0;
}

static int request_name(struct keeper *k, const struct keeper_request *request,
			struct keeper_reply *reply)
{
	const char *name = parking_name_at(&k->parking, request->at);

	if (!name)
		return -ENOENT;
	strcpy(reply->name, name);
	return 0;
}

/* `fd` came with the request; what is parked of it is taken. ret_fd goes with the reply. */
static int request_do(struct keeper *k, const struct keeper_request *request, int *fd,
		      struct keeper_reply *reply, int *ret_fd)
{
	int r;

	if (memchr(request->name, '\0', sizeof(request->name)) == NULL)
		return -EINVAL;
	switch (request->op) {
	case KEEPER_ASK:
		return request_ask(k, request, reply);
	case KEEPER_PUT:
		r = *fd < 0 ? -EBADF : parking_put(&k->parking, request->name, *fd);
		if (!r)
			(void)take_fd(fd); /* the place's now */
		return r;
	case KEEPER_GET:
		r = parking_get(&k->parking, request->name);
		if (r < 0)
			return r;
		*ret_fd = r;
		return 0;
	case KEEPER_DROP:
		return parking_drop(&k->parking, request->name);
	case KEEPER_NAME:
		return request_name(k, request, reply);
	default:
		return -ENOSYS;
	}
}

/*
 * Answers at most REQUESTS_PER_TURN; true when there may be more. A reply that the engine does not
 * fetch is dropped: it asks again or it is broken.
 */
static bool channel_serve(struct keeper *k)
{
	for (int i = 0; i < REQUESTS_PER_TURN && k->channel_fd >= 0; i++) {
		struct keeper_request request;
		struct keeper_reply reply = { 0 };
		auto_close int fd = -1;
		int r, reply_fd = -1;

		r = keeper_wire_receive(k->channel_fd, &request, sizeof(request), MSG_DONTWAIT,
					&fd);
		if (r == -EAGAIN)
			return false;
		if (r == -EBADMSG)
			continue;
		if (r < 0) {
			/* Its end is closed; its death is another event. */
			(void)close(k->channel_fd); /* nothing is in it */
			k->channel_fd = -1;
			return false;
		}
		reply.tag = request.tag;
		reply.error = -request_do(k, &request, &fd, &reply, &reply_fd);
		(void)keeper_wire_send(k->channel_fd, &reply, sizeof(reply), reply_fd,
				       MSG_DONTWAIT); /* see above */
	}
	return k->channel_fd >= 0;
}
