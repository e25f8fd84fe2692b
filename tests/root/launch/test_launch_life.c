/* A slot's life through a worker: build, PID 1, execs, kill, statistics, drop. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "tests/root/launch/harness.h"
#include "tests/root/launch/image.h"

static bool says(const struct harness *h, const char *text)
{
	if (strstr(h->output, text))
		return true;
	note("\"%s\" is not in: %s", text, h->output);
	return false;
}

/* Runs `probe say` and wants exit 0. */
static bool say(struct harness *h, const struct box *box, const struct exec_options *options)
{
	const char *const argv[] = { "/bin/probe", "say", "hello", NULL };
	struct launch_reply reply;

	if (harness_exec(h, box, argv, options, &reply) == 0)
		return true;
	note("%s at %s", strerror(reply.error), launch_step_name(reply.step));
	return false;
}

static bool fails(struct harness *h, const struct box *box, const struct exec_options *options,
		  struct launch_reply expected)
{
	const char *const argv[] = { "/bin/probe", "say", NULL };
	struct launch_reply reply;
	int status = harness_exec(h, box, argv, options, &reply);

	if (status == -1 && reply.error == expected.error && reply.step == expected.step)
		return true;
	note("status %x, %s at %s", (unsigned)status, strerror(reply.error),
	     launch_step_name(reply.step));
	return false;
}

static void a_program_runs_in_a_new_sandbox(struct harness *h)
{
	static const char *const envp[] = { "PATH=/bin", "NAME=value with spaces", NULL };
	const struct exec_options options = { .envp = envp };
	struct box box = box_start(h, 3, LAUNCH_REBUILD);

	expect(say(h, &box, &options));
	expect(says(h, "pid=2 sid=2 uid=0:0 gid=0:0 groups=0 cwd=/root env=value with spaces "
		       "says=hello"));
	box_end(h, &box);
}

static void exit_status_and_input_arrive(struct harness *h)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD);
	const char *const seven[] = { "probe", "exit", "7", NULL };
	const char *const cat[] = { "probe", "cat", NULL };
	struct exec_options options = { 0 };
	int ends[2];

	expect(harness_exec(h, &box, seven, NULL, NULL) == 7 << 8);
	expect(pipe2(ends, O_CLOEXEC) == 0 && write(ends[1], "typed\n", 6) == 6);
	(void)close(ends[1]); /* the end of the input */
	options.input_fd = ends[0];
	expect(harness_exec(h, &box, cat, &options, NULL) == 0);
	expect(strcmp(h->output, "typed\n") == 0);
	(void)close(ends[0]); /* read */
	expect(harness_exec(h, &box, cat, NULL, NULL) == 0 && h->output[0] == 0);
	box_end(h, &box);
}

static void a_request_of_full_size_arrives(struct harness *h)
{
	enum { STRINGS = 150, STRING_BYTES = 1000 };
	struct box box = box_start(h, 0, LAUNCH_REBUILD);
	auto_free char *bytes = calloc(STRINGS, STRING_BYTES);
	const char *envp[STRINGS + 1] = { NULL };
	const struct exec_options options = { .envp = envp };

	for (unsigned i = 0; i < STRINGS; i++) {
		char *string = bytes + i * STRING_BYTES;

		memset(string, 'x', STRING_BYTES - 1);
		memcpy(string, i ? "A=" : "NAME=", i ? 2 : 5);
		envp[i] = string;
	}
	expect(say(h, &box, &options) && strlen(h->output) > STRING_BYTES);
	box_end(h, &box);
}

static void users_are_resolved_inside(struct harness *h)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD);
	static const struct {
		const char *user, *says;
	} fine[] = {
		{ "user", "uid=1000:1000 gid=1001:1001 groups=0 cwd=/home/user " },
		{ "1000", "uid=1000:1000 gid=1001:1001 groups=0 cwd=/home/user " },
		{ "1000:7", "uid=1000:1000 gid=7:7 groups=0 cwd=/home/user " },
		{ "4242", "uid=4242:4242 gid=4242:4242 groups=0 cwd=/ " },
		{ "0:5", "uid=0:0 gid=5:5 groups=0 cwd=/root " },
		{ "root", "uid=0:0 gid=0:0 groups=0 cwd=/root " },
	};
	static const struct {
		const char *user;
		int error;
	} wrong[] = {
		{ "nobody-here", ENOENT }, { "broken line", ENOENT }, { "65536", EINVAL },
		{ "1000:65536", EINVAL },  { "1000:", EINVAL },	      { ":5", ENOENT },
		{ "-1", ENOENT },	   { "1000:5x", EINVAL },     { "99999999999", EINVAL },
		{ "high", EINVAL },	   { "4294967295", EINVAL },  { "12ab", EINVAL },
	};

	for (unsigned i = 0; i < sizeof fine / sizeof *fine; i++) {
		const struct exec_options options = { .user = fine[i].user };

		expect(say(h, &box, &options) && says(h, fine[i].says));
	}
	for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		const struct exec_options options = { .user = wrong[i].user };
		const struct launch_reply expected = { .error = wrong[i].error,
						       .step = LAUNCH_STEP_USER };

		if (!expect(fails(h, &box, &options, expected)))
			note("user %s", wrong[i].user);
	}
	box_end(h, &box);
}

static void a_hostile_password_file_costs_one_request(struct harness *h)
{
	static const struct {
		const char *what;
		int error;
	} files[] = {
		{ "fifo", EINVAL }, { "loop", ELOOP }, { "device", EINVAL }, { "large", EINVAL }
	};

	for (unsigned i = 0; i < sizeof files / sizeof *files; i++) {
		struct box box = box_start(h, 0, LAUNCH_REBUILD);
		const struct exec_options named = { .user = "user" };
		const struct launch_reply expected = { .error = files[i].error,
						       .step = LAUNCH_STEP_USER };

		expect(probe(h, &box, "passwd", files[i].what));
		expect(fails(h, &box, &named, expected));
		expect(say(h, &box, NULL));
		box_end(h, &box);
	}
}

static void a_folder_that_cannot_be_entered_is_named(struct harness *h)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD);
	const struct exec_options fine = { .cwd = "/home" }, missing = { .cwd = "/nowhere" },
				  file = { .cwd = "/etc/passwd" }, init = { .cwd = "/proc/1/cwd" };

	expect(say(h, &box, &fine) && says(h, "cwd=/home "));
	expect(fails(h, &box, &missing,
		     (struct launch_reply){ .error = ENOENT, .step = LAUNCH_STEP_CWD }));
	expect(fails(h, &box, &file,
		     (struct launch_reply){ .error = ENOTDIR, .step = LAUNCH_STEP_CWD }));
	expect(fails(h, &box, &init,
		     (struct launch_reply){ .error = EACCES, .step = LAUNCH_STEP_CWD }));
	box_end(h, &box);
}

static void programs_are_searched_as_execvp_does(struct harness *h)
{
	static const struct {
		const char *path, *name;
		int error;
	} cases[] = {
		{ "PATH=/nowhere:/etc/passwd:/bin", "probe", 0 },
		{ "PATH=/nowhere", "probe", ENOENT },
		{ "NOPATH=1", "probe", 0 }, /* the standard path has /bin */
		{ "PATH=", "probe", ENOENT },
		{ "PATH=/etc:/nowhere", "secret", EACCES },
		{ "PATH=/bin", "./probe", ENOENT },
		{ "PATH=/bin", "/etc/secret", EACCES },
		{ "PATH=/bin", "/bin", EACCES },
		{ "PATH=/bin", "/bin/probe", 0 },
		{ "PATH=/bin", "", ENOENT },
	};
	struct box box = box_start(h, 0, LAUNCH_REBUILD);

	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		const char *const argv[] = { cases[i].name, "exit", "0", NULL };
		const char *const envp[] = { cases[i].path, NULL };
		const struct exec_options options = { .envp = envp };
		struct launch_reply reply;
		int status = harness_exec(h, &box, argv, &options, &reply);

		if (!expect(reply.error == cases[i].error &&
			    (reply.error ? reply.step == LAUNCH_STEP_ARGV0 : status == 0)))
			note("%s in %s: %s", cases[i].name, cases[i].path, strerror(reply.error));
	}
	box_end(h, &box);
}

static void a_killed_leaf_takes_every_descendant(struct harness *h)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD);
	const char *const argv[] = { "probe", "tree", "20", NULL };
	const struct exec_options options = { .leaf = 4, .leave_alone = true };
	struct launch_request request = harness_request(h, LAUNCH_KILL, 0);
	struct launch_reply exec, reply;

	expect(harness_exec(h, &box, argv, &options, &exec) == 0);
	for (unsigned i = 0; i < 2000; i++) {
		reply = harness_op(h, LAUNCH_STAT, 0);
		if (reply.processes == 42)
			break;
		sleep_ms(1);
	}
	expect(reply.processes == 42); /* PID 1, the tree's root, 20 and their 20 */
	request.leaf = 4;
	expect(harness_send(h, 0, &request, NULL));
	expect(WTERMSIG(child_reap(exec.pid)) == SIGKILL);
	expect(harness_receive(h, 0).error == 0);
	expect(faccessat(h->cgroup_fd, "b0/e4", F_OK, 0) < 0 && errno == ENOENT);
	reply = harness_op(h, LAUNCH_STAT, 0);
	expect(reply.error == 0 && reply.processes == 1);
	expect(harness_ask(h, 0, &request, NULL).error == 0); /* there is nothing more to kill */
	expect(probe(h, &box, "exit", "0"));
	box_end(h, &box);
}

static void a_used_leaf_with_somebody_in_it_is_busy(struct harness *h)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD);
	const char *const argv[] = { "probe", "wait", NULL };
	const struct exec_options first = { .leave_alone = true },
				  again = { .flags = LAUNCH_LEAF_USED },
				  other = { .leaf = 1, .flags = LAUNCH_LEAF_USED };
	struct launch_reply exec, reply;

	expect(harness_exec(h, &box, argv, &first, &exec) == 0);
	expect(harness_exec(h, &box, argv, &again, &reply) == -1);
	expect(reply.error == EBUSY && reply.leaf_left == 1 && reply.pid == 0);
	expect(say(h, &box, &other));
	(void)kill(exec.pid, SIGKILL); /* not reaped yet */
	(void)child_reap(exec.pid);
	expect(say(h, &box, &again));
	box_end(h, &box);
}

static void a_slot_in_use_cannot_be_dropped(struct harness *h)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD);
	struct launch_reply reply = harness_op(h, LAUNCH_DROP, 0);

	expect(reply.error == EBUSY);
	expect(probe(h, &box, "exit", "0"));
	box_end(h, &box);
	expect(harness_op(h, LAUNCH_DROP, 0).error == 0); /* nothing is there: fine */
}

static void a_sweep_ends_everything_in_the_slot(struct harness *h)
{
	struct box box = box_start(h, 5, LAUNCH_REBUILD | LAUNCH_PRIVATE);
	const char *const argv[] = { "probe", "tree", "5", NULL };
	const struct exec_options options = { .leaf = 2, .leave_alone = true };
	struct launch_reply exec;

	expect(harness_exec(h, &box, argv, &options, &exec) == 0);
	expect(harness_op(h, LAUNCH_SWEEP, 5).error == 0);
	expect(WTERMSIG(child_reap(exec.pid)) == SIGKILL);
	expect(WTERMSIG(child_reap(box.pid)) == SIGKILL);
	expect(harness_op(h, LAUNCH_SWEEP, 5).error == 0);
	expect(harness_op(h, LAUNCH_NETWORK_DROP, 5).error == 0);
	expect(harness_op(h, LAUNCH_NETWORK_DROP, 5).error == 0); /* nothing is there: fine */
	box = box_start(h, 5, LAUNCH_REBUILD);
	expect(probe(h, &box, "exit", "0"));
	box_end(h, &box);
}

static void an_exec_into_a_dead_sandbox_says_so(struct harness *h)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD);
	const char *const argv[] = { "/bin/probe", "exit", "0", NULL };
	struct launch_reply reply;
	siginfo_t dead;

	(void)kill(box.pid, SIGKILL); /* not reaped yet */
	expect(waitid(P_PID, (id_t)box.pid, &dead, WEXITED | WNOWAIT) == 0);
	expect(harness_exec(h, &box, argv, NULL, &reply) == -1);
	expect(reply.error == ESRCH && reply.pid == 0);
	box_end(h, &box);
}

static struct launch_baseline baseline_now(const struct harness *h, uint32_t slot)
{
	struct launch_baseline now = { 0 };
	struct stat upper;
	char path[64];

	(void)snprintf(path, sizeof path, "slots/%u/up/u", slot);
	if (expect(fstatat(h->vault.root_fd, path, &upper, 0) == 0))
		now.ctime_ns = (uint64_t)upper.st_ctim.tv_sec * 1000000000u +
			       (uint64_t)upper.st_ctim.tv_nsec;
	return now;
}

static void the_baseline_moves_with_the_first_change(struct harness *h)
{
	struct launch_request request = harness_request(h, LAUNCH_SPAWN, 0);
	struct launch_reply first, second;
	struct box box = { .slot = 0 };

	request.flags = LAUNCH_REBUILD;
	first = harness_ask(h, 0, &request, NULL);
	expect(first.error == 0 && !(first.flags & LAUNCH_REUSED) && first.cgroup_id != 0);
	expect(first.baseline.free_blocks > 0 && first.baseline.free_inodes > 0);
	box.pid = first.pid;
	expect(probe(h, &box, "say", NULL));
	expect(probe(h, &box, "terminal", NULL));
	box_stop(&box);
	expect(baseline_now(h, 0).ctime_ns == first.baseline.ctime_ns);

	request.flags = 0;
	second = harness_ask(h, 0, &request, NULL);
	expect(second.error == 0 && second.flags & LAUNCH_REUSED);
	expect(second.cgroup_id == first.cgroup_id);
	box.pid = second.pid;
	expect(probe(h, &box, "chmod", "/"));
	expect(baseline_now(h, 0).ctime_ns != first.baseline.ctime_ns);
	box_end(h, &box);
}

static void a_rebuilt_root_knows_nothing_of_the_last(struct harness *h)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD);

	expect(probe(h, &box, "write", "/etc/secret"));
	expect(probe(h, &box, "write", "/tmp/left"));
	box_stop(&box);
	box = box_start(h, 0, LAUNCH_REBUILD);
	expect(probe(h, &box, "missing", "/tmp/left"));
	box_end(h, &box);
}

static void a_slot_is_reused_a_hundred_times(struct harness *h)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD);

	for (unsigned i = 0; i < 100; i++) {
		box_stop(&box);
		box = box_start(h, 0, 0);
		expect(box.pid > 0);
		if (i % 10 == 0)
			expect(probe(h, &box, "exit", "0"));
	}
	box_end(h, &box);
}

static void statistics_tell_what_is_used(struct harness *h)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD);
	struct launch_reply before = harness_op(h, LAUNCH_STAT, 0), after;

	expect(before.error == 0 && before.cpu_us > 0 && before.cpu_us < 1000000);
	expect(before.disk_bytes == 0 || before.disk_bytes < 65536);
	expect(probe(h, &box, "write", "/tmp/a"));
	after = harness_op(h, LAUNCH_STAT, 0);
	expect(after.disk_bytes >= before.disk_bytes + 4096);
	expect(after.inodes > before.inodes);
	expect(after.cpu_us > before.cpu_us);
	box_end(h, &box);
}

static void the_disk_is_bounded(struct harness *h)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD);

	expect(probe(h, &box, "fill", "16"));
	box_end(h, &box);
}

static void an_image_is_attached_once_and_can_go(struct harness *h)
{
	struct launch_request request = harness_request(h, LAUNCH_DETACH, 0);
	struct launch_reply reply;
	struct box box;

	request.image = 99;
	expect(harness_ask(h, 0, &request, NULL).error == 0); /* it is not there */
	request = harness_request(h, LAUNCH_BUILD, 0);
	request.image = 99;
	reply = harness_ask(h, 0, &request, NULL);
	expect(reply.error == ENOENT && reply.step == LAUNCH_STEP_LOWER);
	box = box_start(h, 0, LAUNCH_REBUILD);
	expect(harness_op(h, LAUNCH_DETACH, 0).error == 0);
	expect(probe(h, &box, "exit", "0")); /* what runs keeps it */
	box_end(h, &box);
}

static void an_attach_can_be_asked_for_again(struct harness *h)
{
	struct launch_request request = harness_request(h, LAUNCH_ATTACH, 0);
	auto_close int same = openat(h->vault.root_fd, "img/7", O_PATH | O_CLOEXEC);
	auto_close int other = image_mount("other");
	struct parcel parcel = { .fds = &same, .fd_count = 1 };
	struct box box;

	_Static_assert(HARNESS_IMAGE == 7, "the folder's name");
	expect(same >= 0 && harness_ask(h, 0, &request, &parcel).error == 0);
	/* Over another image: not even on request. */
	parcel.fds = &other;
	expect(harness_ask(h, 0, &request, &parcel).error == EEXIST);
	box = box_start(h, 0, LAUNCH_REBUILD);
	box_end(h, &box);
	/* A worker was lost after it had made the folder. */
	expect(mkdirat(h->vault.root_fd, "img/8", 0700) == 0);
	request.image = 8;
	expect(harness_ask(h, 0, &request, &parcel).error == 0);
}

static void workers_serve_each_others_slots(struct harness *h)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD);
	struct launch_request request = harness_request(h, LAUNCH_SPAWN, 1);
	struct launch_reply reply;

	request.flags = LAUNCH_REBUILD;
	reply = harness_ask(h, 1, &request, NULL);
	expect(reply.error == 0);
	struct box other = { reply.pid, 1 };

	expect(probe(h, &other, "exit", "0")); /* by worker 0 */
	worker_kill(h, 1);
	expect(probe(h, &other, "exit", "0"));
	expect(worker_start_another(h, 1));
	request = harness_request(h, LAUNCH_STAT, 0);
	expect(harness_ask(h, 1, &request, NULL).processes == 1);
	box_end(h, &box);
	box_end(h, &other);
}

static void a_worker_ends_with_its_channel(struct harness *h)
{
	h->worker_count = 2;
	expect(worker_start_another(h, 1));
	(void)close(h->channels[1]); /* the only end but the worker's */
	expect(WEXITSTATUS(child_reap(h->workers[1])) == 0);
	expect(worker_start_another(h, 1));
}

/* The engine dies while somebody else still holds the worker's channel. */
static void a_worker_follows_the_engine_that_started_it(struct harness *h)
{
	int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	auto_close int pidfd = -1, channel = -1;
	pid_t engine = fork();

	if (engine == 0) {
		if (worker_start_another(h, 1)) {
			shared[1] = h->workers[1];
			__atomic_store_n(&shared[0], h->channels[1], __ATOMIC_RELEASE);
		}
		for (;;)
			pause();
	}
	for (unsigned i = 0; i < 2000 && !__atomic_load_n(&shared[0], __ATOMIC_ACQUIRE); i++)
		sleep_ms(1);
	pidfd = (int)syscall(SYS_pidfd_open, engine, 0);
	channel = (int)syscall(SYS_pidfd_getfd, pidfd, shared[0], 0);
	expect(channel >= 0);
	(void)kill(engine, SIGKILL); /* not reaped yet */
	(void)child_reap(engine);
	/* We are the subreaper: the worker is ours now. */
	expect(child_reap_within(shared[1], 2000));
	(void)munmap(shared, 4096); /* ours */
}

static void a_slot_can_change_its_image(struct harness *h)
{
	struct launch_request request = harness_request(h, LAUNCH_ATTACH, 0);
	struct box box = box_start(h, 0, LAUNCH_REBUILD);
	auto_close int mount_fd = image_mount("other");
	const struct parcel parcel = { .fds = &mount_fd, .fd_count = 1 };

	expect(probe(h, &box, "write", "/etc/secret"));
	box_stop(&box);
	request.image = HARNESS_IMAGE + 1;
	expect(harness_ask(h, 0, &request, &parcel).error == 0);
	request = harness_request(h, LAUNCH_SPAWN, 0);
	request.image = HARNESS_IMAGE + 1;
	request.flags = LAUNCH_REBUILD;
	box.pid = harness_ask(h, 0, &request, NULL).pid;
	expect(probe(h, &box, "missing", "/etc/secret"));
	box_stop(&box);
	box = box_start(h, 0, LAUNCH_REBUILD);
	expect(!probe(h, &box, "missing", "/etc/secret"));
	box_end(h, &box);
}

static bool is_proven(struct harness *h, const struct box *box)
{
	struct launch_request request = harness_request(h, LAUNCH_FINISH, box->slot);
	struct launch_reply reply;

	request.flags = LAUNCH_PROVE;
	request.pid = box->pid;
	reply = harness_ask(h, 0, &request, NULL);
	return expect(reply.error == 0) && reply.flags & LAUNCH_CLEAN;
}

/* As the governor moves them, while it keeps CPUs free. */
static void a_worker_proves_the_same_wherever_it_runs(struct harness *h)
{
	const pid_t worker = h->workers[0];
	struct box box = box_start(h, 0, LAUNCH_REBUILD);
	cpu_set_t home, away;
	int last = CPU_SETSIZE - 1;

	expect(sched_getaffinity(worker, sizeof home, &home) == 0);
	while (last > 0 && !CPU_ISSET(last, &home))
		last--;
	CPU_ZERO(&away);
	CPU_SET(last, &away);
	expect(probe(h, &box, "init", NULL) && is_proven(h, &box));
	expect(sched_setaffinity(worker, sizeof away, &away) == 0);
	expect(probe(h, &box, "init", NULL) && is_proven(h, &box));
	/* And it is not where the worker is now that PID 1 has to be. */
	expect(sched_setaffinity(box.pid, sizeof away, &away) == 0);
	expect(is_proven(h, &box) == CPU_EQUAL(&home, &away));
	expect(sched_setaffinity(worker, sizeof home, &home) == 0);
	box_end(h, &box);
}

#define TEST(name, ...)                                                                            \
	{                                                                                          \
#name, name,                                                                       \
		{                                                                                  \
			__VA_ARGS__                                                                \
		}                                                                                  \
	}

static const struct harness_test tests[] = {
	TEST(a_program_runs_in_a_new_sandbox),
	TEST(exit_status_and_input_arrive),
	TEST(a_request_of_full_size_arrives),
	TEST(users_are_resolved_inside),
	TEST(a_hostile_password_file_costs_one_request),
	TEST(a_folder_that_cannot_be_entered_is_named),
	TEST(programs_are_searched_as_execvp_does),
	TEST(a_killed_leaf_takes_every_descendant),
	TEST(a_used_leaf_with_somebody_in_it_is_busy),
	TEST(a_slot_in_use_cannot_be_dropped),
	TEST(a_sweep_ends_everything_in_the_slot),
	TEST(an_exec_into_a_dead_sandbox_says_so),
	TEST(the_baseline_moves_with_the_first_change),
	TEST(a_rebuilt_root_knows_nothing_of_the_last),
	TEST(a_slot_is_reused_a_hundred_times),
	TEST(statistics_tell_what_is_used),
	TEST(the_disk_is_bounded),
	TEST(an_image_is_attached_once_and_can_go),
	TEST(an_attach_can_be_asked_for_again),
	TEST(a_slot_can_change_its_image),
	TEST(a_worker_proves_the_same_wherever_it_runs),
	TEST(workers_serve_each_others_slots, .workers = 2),
	TEST(a_worker_ends_with_its_channel),
	TEST(a_worker_follows_the_engine_that_started_it),
};

int main(int argc, char **argv)
{
	return harness_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
