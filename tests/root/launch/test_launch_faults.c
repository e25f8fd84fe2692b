/*
 * Every system call of every request fails once, in turn: a dry run counts them, so that no call
 * and no new operation is forgotten. The answer names a step and an errno, or the request went
 * well all the same; nothing is left, the worker has what it had before, and the same request is
 * then served. A worker that cannot get back to its own namespaces ends, and is replaced as the
 * engine does it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/root/launch/fault_requests.h"
#include "tests/root/launch/harness.h"
#include "tests/root/launch/saboteur.h"
#include "tests/slowness.h"

enum { FOOTPRINT_BYTES = 512, LOST_SETTLE_MS = 5000, OTHER_SLOT = 1, MISSES_MAX = 2 };

struct fault_run {
	struct harness *h;
	const struct fault_request *request;
	struct saboteur saboteur;
	char footprint[FOOTPRINT_BYTES]; /* of a worker that answered well */
	uint32_t calls, cases, lost, tolerated;
};

/* What a worker holds: its descriptors, namespaces, folder and children. */
static void footprint_take(pid_t pid, char text[static FOOTPRINT_BYTES])
{
	static const char *const links[] = { "ns/mnt",	"ns/net", "ns/pid_for_children",
					     "ns/user", "ns/uts", "root" };
	char path[64], target[128];
	const struct dirent *entry;
	unsigned fds = 0;
	size_t at;
	DIR *dir;

	(void)snprintf(path, sizeof path, "/proc/%d/fd", pid);
	dir = opendir(path);
	while (dir && (entry = readdir(dir)))
		fds += entry->d_name[0] != '.';
	if (dir)
		(void)closedir(dir); /* only read */
	at = (size_t)snprintf(text, FOOTPRINT_BYTES, "%u descriptors", fds);
	for (unsigned i = 0; i < sizeof links / sizeof *links; i++) {
		ssize_t bytes;

		(void)snprintf(path, sizeof path, "/proc/%d/%s", pid, links[i]);
		bytes = readlink(path, target, sizeof target - 1);
		target[bytes < 0 ? 0 : bytes] = 0;
		/* Those of the worker's own making are another's in another worker. */
		if (strcmp(links[i], "ns/mnt") == 0)
			(void)snprintf(target, sizeof target, "mnt");
		at += (size_t)snprintf(text + at, FOOTPRINT_BYTES - at, " %s", target);
	}
	(void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", pid, pid);
	(void)text_read_at(AT_FDCWD, path, target, sizeof target);
	(void)snprintf(text + at, FOOTPRINT_BYTES - at, " children %s", target);
}

static void mount_namespace_of(pid_t pid, char text[static 64])
{
	char path[64];
	ssize_t bytes;

	(void)snprintf(path, sizeof path, "/proc/%d/ns/mnt", pid);
	bytes = readlink(path, text, 63);
	text[bytes < 0 ? 0 : bytes] = 0;
}

/* A program to its end. The file helper, which is asked nothing, ends as it likes. */
static void program_ask(struct fault_run *run, struct fault_case *c, struct launch_reply *ret)
{
	struct exec_options options = fault_exec;
	int status, master = -1;

	options.flags = run->request->flags;
	options.leave_alone = options.flags & LAUNCH_TTY;
	options.ret_tty = options.leave_alone ? &master : NULL;
	status = harness_exec(run->h, &c->box, fault_argv, &options, ret);
	expect((master >= 0) == (options.leave_alone && !ret->error));
	if (!ret->error && options.leave_alone)
		status = child_reap(ret->pid);
	if (master >= 0)
		(void)close(master); /* hung up */
	expect(ret->error || status == 0 || options.flags & LAUNCH_HELPER);
}

static struct launch_reply request_ask(struct fault_run *run, struct fault_case *c)
{
	const struct fault_request *r = run->request;
	struct launch_request q = harness_request(run->h, r->op, FAULT_SLOT);
	const struct parcel parcel = { .fds = &c->fd, .fd_count = 1 };
	struct launch_reply reply;

	if (r->op == LAUNCH_EXEC) {
		program_ask(run, c, &reply);
		return reply;
	}
	q.flags = r->flags;
	q.leaf = FAULT_LEAF;
	if (r->fill)
		r->fill(run->h, c, &q);
	reply = harness_ask(run->h, FAULT_TRACED, &q, c->fd ? &parcel : NULL);
	if (reply.error && reply.pid > 0) {
		/* The engine does so too. */
		(void)kill(reply.pid, SIGKILL); /* not reaped yet: the pid is its own */
		(void)child_reap(reply.pid);
	}
	if (!reply.error && r->op == LAUNCH_SPAWN)
		c->box.pid = reply.pid;
	return reply;
}

static bool slot_is_there(const struct harness *h)
{
	return faccessat(h->vault.root_fd, "slots/0", F_OK, 0) == 0 ||
	       faccessat(h->cgroup_fd, "b0", F_OK, 0) == 0;
}

/* A child of ours that nobody was told of; the workers live. */
static bool has_stray(void)
{
	return waitpid(-1, NULL, WNOHANG) > 0;
}

/* As the engine does it: what the lost worker may have begun is swept, then asked for anew. */
static void worker_replace(struct fault_run *run)
{
	const struct fault_request *r = run->request;
	struct launch_request q = harness_request(run->h, LAUNCH_SWEEP, FAULT_SLOT);

	saboteur_end(&run->saboteur);
	expect(child_reap_within(run->h->workers[FAULT_TRACED], LOST_SETTLE_MS));
	(void)close(run->h->channels[FAULT_TRACED]); /* dead */
	expect(worker_start_another(run->h, FAULT_TRACED));
	q.leaf = FAULT_LEAF;
	if (r->op == LAUNCH_EXEC || r->op == LAUNCH_KILL)
		q.op = LAUNCH_KILL; /* asked until it succeeds */
	else if (r->op == LAUNCH_SIGNAL)
		q.op = LAUNCH_SIGNAL; /* 0: it may have left the leaf frozen */
	else if (r->op == LAUNCH_NETWORK_MAKE)
		q.op = LAUNCH_NETWORK_DROP;
	else if (r->op != LAUNCH_SPAWN && r->op != LAUNCH_BUILD)
		return;
	struct launch_reply reply = { .error = EBUSY };

	for (unsigned i = 0; i < 10 && reply.error; i++) {
		reply = harness_ask(run->h, FAULT_PLAIN, &q, NULL);
		while (has_stray()) /* born without anybody knowing */
			;
	}
	expect(reply.error == 0);
}

static void fault_note(const struct fault_run *run, uint32_t nth, const struct launch_reply *reply)
{
	const struct sabotage *s = run->saboteur.shared;

	note("%s, call %u of %u, number %lld %s: %s at %s", run->request->name, nth, run->calls,
	     s ? (long long)s->number : -1, s && s->by_child ? "of a child" : "of the worker",
	     strerror(reply->error), launch_step_name(reply->step));
}

/* The call failed: what was answered, what is left, and that it goes well when asked again. */
static bool fault_check(struct fault_run *run, struct fault_case *c, struct launch_reply *reply)
{
	const struct fault_request *r = run->request;
	bool good = true;

	if (reply->error == EPIPE) {
		/* Only on its way back to its own namespaces. */
		good = expect(run->saboteur.shared->number == SYS_setns);
		run->lost++;
		worker_replace(run);
	} else if (reply->error) {
		good &= expect(reply->step > LAUNCH_STEP_REQUEST);
		if (r->op == LAUNCH_BUILD)
			good &= expect(!slot_is_there(run->h));
		/* The others end what lives. */
		good &= expect(r->op == LAUNCH_KILL || r->op == LAUNCH_SWEEP ||
			       r->op == LAUNCH_FINISH || !has_stray());
	} else {
		run->tolerated++;
		return true;
	}
	/* What a lost worker swept away is built first. */
	if (r->op == LAUNCH_SPAWN && !(r->flags & LAUNCH_REBUILD) && !slot_is_there(run->h)) {
		struct launch_request q = harness_request(run->h, LAUNCH_BUILD, FAULT_SLOT);

		good &= expect(harness_ask(run->h, FAULT_PLAIN, &q, NULL).error == 0);
	}
	*reply = request_ask(run, c);
	good &= expect(reply->error == 0);
	if (reply->error)
		note("asked again: %s at %s", strerror(reply->error),
		     launch_step_name(reply->step));
	return good;
}

static void case_clean(struct fault_run *run, struct fault_case *c)
{
	struct launch_request q = harness_request(run->h, LAUNCH_SWEEP, FAULT_SLOT);

	if (c->program > 0) {
		(void)kill(c->program, SIGKILL); /* not reaped yet: the pid is its own */
		(void)child_reap(c->program);
	}
	box_stop(&c->box);
	expect(harness_ask(run->h, FAULT_PLAIN, &q, NULL).error == 0);
	expect(!slot_is_there(run->h));
	if (c->fd > 0)
		(void)close(c->fd); /* it hangs in the vault, or goes */
	if (c->listener_fd > 0)
		(void)close(c->listener_fd); /* with its network */
	q = harness_request(run->h, LAUNCH_NETWORK_DROP, FAULT_SLOT);
	expect(harness_ask(run->h, FAULT_PLAIN, &q, NULL).error == 0);
	if (faccessat(run->h->vault.root_fd, "img/8", F_OK, 0) == 0) {
		q = harness_request(run->h, LAUNCH_DETACH, 0);
		q.image = FAULT_IMAGE;
		expect(harness_ask(run->h, FAULT_PLAIN, &q, NULL).error == 0);
	}
	expect(!has_stray());
}

/* One request from nothing to nothing; nth 0 is the dry run. False: that call did not come. */
static bool fault_case(struct fault_run *run, uint32_t nth)
{
	struct fault_case c = { .box.slot = FAULT_SLOT };
	char footprint[FOOTPRINT_BYTES], before[64], after[64];
	struct launch_reply first, reply;
	bool came, good = true;

	if (run->request->prepare)
		run->request->prepare(run->h, &c);
	/* What it answers, it answers after its start. */
	if (!expect(worker_start_another(run->h, FAULT_TRACED)) ||
	    !expect(harness_op(run->h, LAUNCH_OP_COUNT, 0).error == EINVAL) ||
	    !expect(saboteur_start(&run->saboteur, run->h->workers[FAULT_TRACED])))
		return false;
	saboteur_arm(&run->saboteur, nth);
	mount_namespace_of(run->h->workers[FAULT_TRACED], before);
	first = reply = request_ask(run, &c);
	if (nth == 0)
		run->calls = run->saboteur.shared->counted;
	came = run->saboteur.shared->failed;
	run->saboteur.shared->fail_at = 0; /* what comes now is to go well */
	const pid_t pid = run->h->workers[FAULT_TRACED];

	if (came)
		good = fault_check(run, &c, &reply);
	else
		good = expect(reply.error == 0);
	if (!good)
		fault_note(run, nth, &first);
	saboteur_end(&run->saboteur);
	if (run->request->look)
		run->request->look(run->h, &c, &reply);
	/* Its proc for settings it has from then on; one that is bound builds none. */
	if (run->request->op != LAUNCH_BIND) {
		expect(harness_op(run->h, LAUNCH_BUILD, OTHER_SLOT).error == 0);
		expect(harness_op(run->h, LAUNCH_DROP, OTHER_SLOT).error == 0);
	}
	footprint_take(run->h->workers[FAULT_TRACED], footprint);
	mount_namespace_of(run->h->workers[FAULT_TRACED], after);
	if (nth == 0)
		memcpy(run->footprint, footprint, sizeof footprint);
	if (!expect(strcmp(run->footprint, footprint) == 0) ||
	    !expect(pid != run->h->workers[FAULT_TRACED] || strcmp(before, after) == 0))
		note("after call %u the worker has %s, and not %s", nth, footprint, run->footprint);
	(void)close(run->h->channels[FAULT_TRACED]); /* ends the worker */
	expect(child_reap_within(run->h->workers[FAULT_TRACED], LOST_SETTLE_MS));
	run->h->workers[FAULT_TRACED] = 0;
	case_clean(run, &c);
	return came;
}

static void every_call_fails_once_and_costs_its_request_only(struct harness *h)
{
	const uint32_t stride = slowness() > 2 ? slowness() / 2 : 1;
	uint32_t total = 0;

	worker_kill(h, FAULT_TRACED);
	for (unsigned i = 0; i < fault_request_count; i++) {
		struct fault_run run = { .h = h, .request = &fault_requests[i] };
		unsigned misses = 0;

		expect(!fault_case(&run, 0));
		const uint32_t first = run.calls && run.calls < stride ? run.calls : stride;

		/*
		 * On a slow machine some of them, others in each request. Where something is waited
		 * for, how many there are is chance: until none comes any more.
		 */
		for (uint32_t nth = 1 + i % first; misses < MISSES_MAX; nth += stride) {
			const bool came = fault_case(&run, nth);

			run.cases += came;
			misses = came ? 0 : misses + 1;
		}
		note("%s: %u calls, %u failed, %u of no consequence, %u cost the worker",
		     run.request->name, run.calls, run.cases, run.tolerated, run.lost);
		expect(run.calls >= 2 && run.cases > 0);
		total += run.cases;
	}
	note("%u calls failed once", total);
	expect(worker_start_another(h, FAULT_TRACED));
}

static void every_operation_is_among_them(struct harness *h)
{
	(void)h;
	for (uint32_t op = 1; op < LAUNCH_OP_COUNT; op++) {
		bool found = false;

		for (unsigned i = 0; i < fault_request_count; i++)
			found |= fault_requests[i].op == op;
		if (!expect(found))
			note("operation %u has no row in fault_requests.c", op);
	}
}

#define TEST(name, ...)                                                                            \
	{                                                                                          \
#name, name,                                                                       \
		{                                                                                  \
			__VA_ARGS__                                                                \
		}                                                                                  \
	}

static const struct harness_test tests[] = {
	TEST(every_call_fails_once_and_costs_its_request_only, .workers = 2),
	TEST(every_operation_is_among_them),
};

int main(int argc, char **argv)
{
	return harness_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
