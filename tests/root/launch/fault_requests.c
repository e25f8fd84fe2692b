/*
 * The table of fault_requests.h. Called by test_launch_faults.c. Must hold: what `prepare` does is
 * asked of the worker that no call fails in.
 */
#include "tests/root/launch/fault_requests.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backends/container/walls.h"
#include "bpf/guard_policy.h"
#include "engine/base/cleanup.h"
#include "tests/root/launch/image.h"

enum { FAULT_PORT = 8080 };

const char *const fault_argv[] = { "probe", "exit", "0", NULL };
/* Looked up in the password file and in PATH; in a folder that was named. */
const struct exec_options fault_exec = { .user = "user", .cwd = "/home", .leaf = FAULT_LEAF };

static struct launch_reply plainly(struct harness *h, uint32_t op, uint32_t flags)
{
	struct launch_request q = harness_request(h, op, FAULT_SLOT);
	struct launch_reply reply;

	q.flags = flags;
	q.leaf = FAULT_LEAF;
	reply = harness_ask(h, FAULT_PLAIN, &q, NULL);
	if (!expect(reply.error == 0))
		note("preparing: %s at %s", strerror(reply.error), launch_step_name(reply.step));
	return reply;
}

static void built(struct harness *h, struct fault_case *c)
{
	(void)c;
	(void)plainly(h, LAUNCH_BUILD, 0);
}

static void networked(struct harness *h, struct fault_case *c)
{
	(void)c;
	(void)plainly(h, LAUNCH_NETWORK_MAKE, 0);
}

static void built_and_networked(struct harness *h, struct fault_case *c)
{
	networked(h, c);
	built(h, c);
}

static void running(struct harness *h, struct fault_case *c)
{
	networked(h, c);
	c->box.pid = plainly(h, LAUNCH_SPAWN, LAUNCH_REBUILD | LAUNCH_PRIVATE).pid;
}

/* A slot that had a sandbox with a network of its own. */
static void used(struct harness *h, struct fault_case *c)
{
	running(h, c);
	box_stop(&c->box);
	c->box.pid = 0;
}

/* Something of the sandbox listens. */
static void listening(struct harness *h, struct fault_case *c)
{
	const struct sockaddr_in address = { .sin_family = AF_INET,
					     .sin_port = htons(FAULT_PORT),
					     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	auto_close int own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	char path[64];

	running(h, c);
	(void)snprintf(path, sizeof path, "/proc/%d/ns/net", c->box.pid);
	auto_close int its = open(path, O_RDONLY | O_CLOEXEC);

	expect(setns(its, CLONE_NEWNET) == 0);
	c->listener_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	expect(bind(c->listener_fd, (const struct sockaddr *)&address, sizeof address) == 0);
	expect(listen(c->listener_fd, 8) == 0);
	expect(setns(own, CLONE_NEWNET) == 0);
}

/* A program that will not go by itself, in a leaf. */
static void busy(struct harness *h, struct fault_case *c)
{
	const char *const argv[] = { "probe", "wait", NULL };
	const struct exec_options options = { .leaf = FAULT_LEAF,
					      .leave_alone = true,
					      .worker = FAULT_PLAIN };
	struct launch_reply reply;

	running(h, c);
	expect(harness_exec(h, &c->box, argv, &options, &reply) == 0);
	c->program = reply.pid;
}

static void frozen(struct harness *h, struct fault_case *c)
{
	busy(h, c);
	plainly(h, LAUNCH_FREEZE, 0);
}

/* The leaf is there, with nobody in it. */
static void leaf_left(struct harness *h, struct fault_case *c)
{
	struct exec_options options = fault_exec;

	options.worker = FAULT_PLAIN;
	running(h, c);
	expect(harness_exec(h, &c->box, fault_argv, &options, NULL) == 0);
}

/* With what a phase's policy puts up around it. */
static void narrower(struct harness *h, struct fault_case *c)
{
	static const struct guard_rule rule = { .kind = GUARD_RULE_FILE,
						.bits = GUARD_FILE_WRITE | GUARD_FILE_SUBTREE,
						.text = "/bin" };
	const struct guard_policy policy = { .number = 1, .rule_count = 1, .rules = &rule };

	running(h, c);
	expect(walls_make(&policy, &(struct walls_wish){ 0 }, &c->fd) == 0);
}

/* With a filter in it. */
static void filtered(struct harness *h, struct fault_case *c)
{
	static const struct guard_rule rule = { .kind = GUARD_RULE_PROCESS,
						.value = GUARD_PROCESS_PTRACE };
	const struct guard_policy policy = { .number = 1, .rule_count = 1, .rules = &rule };

	(void)h;
	expect(walls_make(&policy, &(struct walls_wish){ 0 }, &c->fd) == 0);
}

static void narrow_fill(struct harness *h, struct fault_case *c, struct launch_request *q)
{
	(void)h;
	q->pid = c->box.pid;
}

static void port_fill(struct harness *h, struct fault_case *c, struct launch_request *q)
{
	(void)h;
	(void)c;
	q->port = FAULT_PORT;
}

static void image_open(struct harness *h, struct fault_case *c)
{
	(void)h;
	c->fd = image_mount("other");
	expect(c->fd >= 0);
}

static void terminal_open(struct harness *h, struct fault_case *c)
{
	(void)h;
	c->fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	expect(c->fd >= 0);
}

static void terminal_fill(struct harness *h, struct fault_case *c, struct launch_request *q)
{
	(void)h;
	(void)c;
	q->rows = 5;
	q->columns = 6;
}

/* One that costs the program nothing. */
static void signal_fill(struct harness *h, struct fault_case *c, struct launch_request *q)
{
	(void)h;
	(void)c;
	q->signal = SIGCONT;
}

static void finish_fill(struct harness *h, struct fault_case *c, struct launch_request *q)
{
	(void)h;
	q->pid = c->box.pid;
}

static void image_fill(struct harness *h, struct fault_case *c, struct launch_request *q)
{
	(void)h;
	(void)c;
	q->image = FAULT_IMAGE;
}

static void image_attached(struct harness *h, struct fault_case *c)
{
	struct launch_request q = harness_request(h, LAUNCH_ATTACH, 0);
	const struct parcel parcel = { .fds = &c->fd, .fd_count = 1 };

	image_open(h, c);
	q.image = FAULT_IMAGE;
	expect(harness_ask(h, FAULT_PLAIN, &q, &parcel).error == 0);
	(void)close(c->fd); /* it hangs in the vault */
	c->fd = 0;
}

/* Built of the harness's image; the other one is there too. */
static void built_of_another(struct harness *h, struct fault_case *c)
{
	image_attached(h, c);
	built(h, c);
}

static void limits_fill(struct harness *h, struct fault_case *c, struct launch_request *q)
{
	(void)h;
	(void)c;
	/* To spare PID 1 takes a right that root lacks in some containers. */
	if (prctl(PR_CAPBSET_READ, CAP_SYS_RESOURCE) == 1)
		q->flags |= LAUNCH_OOM;
	q->limits_changed = BOX_LIMIT_ALL;
	q->limits = (struct box_limits){ .memory_bytes = 64 << 20,
					 .swap_bytes = 1 << 20,
					 .pids_max = 100,
					 .cpu_max_permille = 1000 };
}

static bool is_there(const struct harness *h, const char *path)
{
	return faccessat(h->vault.root_fd, path, F_OK, 0) == 0;
}

static void image_is_used(struct harness *h, struct fault_case *c, const struct launch_reply *reply)
{
	(void)reply;
	struct launch_request q = harness_request(h, LAUNCH_BUILD, FAULT_SLOT);

	(void)c;
	q.image = FAULT_IMAGE;
	expect(harness_ask(h, FAULT_PLAIN, &q, NULL).error == 0);
}

static void image_is_gone(struct harness *h, struct fault_case *c, const struct launch_reply *reply)
{
	(void)reply;
	(void)c;
	expect(!is_there(h, "img/8"));
}

/* Complete: nothing was left out because a call failed. */
static void sandbox_is_whole(struct harness *h, struct fault_case *c,
			     const struct launch_reply *reply)
{
	(void)reply;
	static const char *const probes[] = { "mounts", "masks", "devices", "init", "descriptors" };

	for (unsigned i = 0; i < sizeof probes / sizeof *probes; i++)
		expect(probe(h, &c->box, probes[i], NULL));
}

static void bin_is_read_only(struct harness *h, struct fault_case *c,
			     const struct launch_reply *reply)
{
	char path[48], text[16384];

	(void)h;
	(void)reply;
	(void)snprintf(path, sizeof path, "/proc/%d/mountinfo", c->box.pid);
	(void)text_read_at(AT_FDCWD, path, text, sizeof text);
	expect(strstr(text, " /bin ro,"));
}

static void sandbox_has_network(struct harness *h, struct fault_case *c,
				const struct launch_reply *reply)
{
	(void)reply;
	sandbox_is_whole(h, c, reply);
	expect(probe(h, &c->box, "loopback", "up"));
	expect(probe(h, &c->box, "network-masks", NULL));
}

static void slot_starts(struct harness *h, struct fault_case *c, const struct launch_reply *reply)
{
	(void)reply;
	c->box.pid = plainly(h, LAUNCH_SPAWN, 0).pid;
	sandbox_is_whole(h, c, reply);
}

static void leaf_is_gone(struct harness *h, struct fault_case *c, const struct launch_reply *reply)
{
	(void)reply;
	(void)c;
	expect(faccessat(h->cgroup_fd, "b0/e3", F_OK, 0) < 0);
}

static void leaf_runs(struct harness *h, struct fault_case *c, const struct launch_reply *reply)
{
	char text[16] = "";

	(void)reply;
	(void)text_read_at(h->cgroup_fd, "b0/e3/cgroup.freeze", text, sizeof text);
	expect(text[0] == '0');
	expect(kill(c->program, 0) == 0);
}

static bool slot_is_frozen(struct harness *h)
{
	char text[256] = "";

	(void)text_read_at(h->cgroup_fd, "b0/cgroup.events", text, sizeof text);
	return strstr(text, "frozen 1");
}

/* And somebody thaws it, or its end is not waited for in vain. */
static void slot_stands_still(struct harness *h, struct fault_case *c,
			      const struct launch_reply *reply)
{
	(void)c;
	expect(reply->descriptor_count == 1);
	expect(slot_is_frozen(h));
	plainly(h, LAUNCH_THAW, 0);
	expect(!slot_is_frozen(h));
}

static void slot_runs(struct harness *h, struct fault_case *c, const struct launch_reply *reply)
{
	(void)reply;
	expect(!slot_is_frozen(h));
	expect(kill(c->program, 0) == 0);
}

static void slot_is_gone(struct harness *h, struct fault_case *c, const struct launch_reply *reply)
{
	(void)reply;
	(void)c;
	expect(!is_there(h, "slots/0"));
	expect(faccessat(h->cgroup_fd, "b0", F_OK, 0) < 0);
}

static void network_starts(struct harness *h, struct fault_case *c,
			   const struct launch_reply *reply)
{
	expect(network_is_there(h, FAULT_SLOT));
	c->box.pid = plainly(h, LAUNCH_SPAWN, LAUNCH_PRIVATE | LAUNCH_REBUILD).pid;
	sandbox_has_network(h, c, reply);
}

static void network_is_gone(struct harness *h, struct fault_case *c,
			    const struct launch_reply *reply)
{
	(void)c;
	(void)reply;
	expect(!network_is_there(h, FAULT_SLOT));
}

/* What cannot be read is no proof. */
static void network_is_not_clean(struct harness *h, struct fault_case *c,
				 const struct launch_reply *reply)
{
	(void)h;
	(void)c;
	expect(!(reply->flags & LAUNCH_CLEAN));
}

/* clang-format off */
const struct fault_request fault_requests[] = {
	{ "attach an image", LAUNCH_ATTACH, 0, image_open, image_fill, image_is_used },
	{ "detach an image", LAUNCH_DETACH, 0, image_attached, image_fill, image_is_gone },
	{ "build a slot", LAUNCH_BUILD, 0, NULL, NULL, slot_starts },
	{ "build it again", LAUNCH_BUILD, 0, built, NULL, slot_starts },
	{ "build it anew", LAUNCH_BUILD, LAUNCH_ANEW, built, NULL, slot_starts },
	{ "build it of another image", LAUNCH_BUILD, 0, built_of_another, image_fill, slot_starts },
	{ "spawn with a build", LAUNCH_SPAWN, LAUNCH_REBUILD, NULL, NULL, sandbox_is_whole },
	{ "spawn", LAUNCH_SPAWN, 0, built, NULL, sandbox_is_whole },
	{ "spawn of a moved worker", LAUNCH_SPAWN, LAUNCH_WIDE, built, NULL, sandbox_is_whole },
	{ "spawn with limits", LAUNCH_SPAWN, 0, built, limits_fill, sandbox_is_whole },
	{ "spawn with a network", LAUNCH_SPAWN, LAUNCH_PRIVATE, built_and_networked, NULL,
	  sandbox_has_network },
	{ "exec", LAUNCH_EXEC, 0, running, NULL, sandbox_is_whole },
	{ "exec when idle", LAUNCH_EXEC, LAUNCH_SCHED_IDLE, running, NULL, sandbox_is_whole },
	{ "exec of a moved worker", LAUNCH_EXEC, LAUNCH_WIDE, running, NULL, sandbox_is_whole },
	{ "exec in a leaf of before", LAUNCH_EXEC, LAUNCH_LEAF_USED, leaf_left, NULL,
	  sandbox_is_whole },
	{ "exec on a terminal", LAUNCH_EXEC, LAUNCH_TTY, running, NULL, sandbox_is_whole },
	{ "exec the file helper", LAUNCH_EXEC, LAUNCH_HELPER, running, NULL, sandbox_is_whole },
	{ "size a terminal", LAUNCH_RESIZE, 0, terminal_open, terminal_fill, NULL },
	{ "signal a leaf", LAUNCH_SIGNAL, 0, busy, signal_fill, leaf_runs },
	{ "kill a leaf", LAUNCH_KILL, 0, busy, NULL, leaf_is_gone },
	{ "finish a program", LAUNCH_FINISH, LAUNCH_PROVE, leaf_left, finish_fill, NULL },
	{ "finish what it left", LAUNCH_FINISH, LAUNCH_PROVE | LAUNCH_LEAF_GONE, busy, finish_fill,
	  leaf_is_gone },
	{ "sweep", LAUNCH_SWEEP, 0, busy, NULL, slot_is_gone },
	{ "drop", LAUNCH_DROP, 0, used, NULL, slot_is_gone },
	{ "read figures", LAUNCH_STAT, 0, busy, NULL, NULL },
	{ "make a network", LAUNCH_NETWORK_MAKE, 0, NULL, NULL, network_starts },
	{ "prove it", LAUNCH_NETWORK_PROVE, 0, networked, NULL, NULL },
	{ "prove it in use", LAUNCH_NETWORK_PROVE, 0, listening, NULL, network_is_not_clean },
	{ "drop it", LAUNCH_NETWORK_DROP, 0, networked, NULL, network_is_gone },
	{ "look for a listener", LAUNCH_PORT_LOOK, 0, listening, port_fill, NULL },
	{ "connect to it", LAUNCH_PORT_CONNECT, 0, listening, port_fill, NULL },
	{ "freeze", LAUNCH_FREEZE, 0, busy, NULL, slot_stands_still },
	{ "thaw", LAUNCH_THAW, 0, frozen, NULL, slot_runs },
	{ "narrow", LAUNCH_NARROW, LAUNCH_WALLS, narrower, narrow_fill, bin_is_read_only },
	{ "bind to a filter", LAUNCH_BIND, LAUNCH_WALLS, filtered, NULL, NULL },
};
/* clang-format on */

const unsigned fault_request_count = sizeof fault_requests / sizeof *fault_requests;
