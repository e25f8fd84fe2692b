/*
 * The engine's part in launcher tests. Must hold: whatever a test did, harness_close() ends every
 * process below the test's cgroup folder, and what it had to end beyond the workers is a failure.
 */
#include "tests/root/launch/harness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backends/container/launcher.h"
#include "engine/base/cleanup.h"
#include "tests/root/launch/image.h"

/* The one state beside the harness: how many checks failed in the test that runs. */
static unsigned failures;

bool expect_at(bool holds, const char *file, int line, const char *what)
{
	if (!holds) {
		failures++;
		printf("    %s:%d: failed: %s\n", file, line, what);
	}
	return holds;
}

void note(const char *format, ...)
{
	va_list arguments;

	printf("    ");
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf("\n");
}

void sleep_ms(unsigned ms)
{
	const struct timespec pause = { ms / 1000, (long)(ms % 1000) * 1000000 };

	(void)nanosleep(&pause, NULL); /* shorter is fine */
}

long text_read_at(int dir_fd, const char *path, char *text, size_t size)
{
	auto_close int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC);
	size_t filled = 0;
	ssize_t bytes;

	if (fd < 0)
		return -errno;
	while ((bytes = read(fd, text + filled, size - 1 - filled)) > 0)
		filled += (size_t)bytes;
	if (bytes < 0)
		return -errno;
	text[filled] = 0;
	return (long)filled;
}

int child_reap(pid_t pid)
{
	int status = -1;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

bool child_reap_within(pid_t pid, unsigned ms)
{
	for (unsigned i = 0; i <= ms; i++) {
		if (waitpid(pid, NULL, WNOHANG) == pid)
			return true;
		sleep_ms(1);
	}
	return false;
}

/* Requests and replies. */

static size_t parcel_pack(const struct parcel *parcel, struct launch_request *q, char *bytes)
{
	char *at = bytes;

	for (const char *const *s = parcel->argv; s && *s; s++, q->argument_count++)
		at = stpcpy(at, *s) + 1;
	for (const char *const *s = parcel->envp; s && *s; s++, q->environment_count++)
		at = stpcpy(at, *s) + 1;
	if (parcel->argv)
		at = stpcpy(at, parcel->cwd ? parcel->cwd : "") + 1;
	return (size_t)(at - bytes);
}

bool harness_send(struct harness *h, unsigned worker, struct launch_request *q,
		  const struct parcel *parcel)
{
	char control[CMSG_SPACE(16 * sizeof(int))] __attribute__((aligned(8))) = { 0 };
	auto_free char *payload = malloc(LAUNCH_PAYLOAD_BYTES_MAX);
	struct iovec parts[3] = { { q, sizeof *q }, { NULL, 0 }, { payload, 0 } };
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 3 };

	if (parcel) {
		parts[1] = (struct iovec){ (void *)parcel->limits,
					   q->limit_count * sizeof *parcel->limits };
		parts[2].iov_len = parcel_pack(parcel, q, payload);
		q->payload_bytes = (uint32_t)(parts[1].iov_len + parts[2].iov_len);
		q->descriptor_count = parcel->fd_count;
	}
	if (parcel && parcel->fd_count) {
		struct cmsghdr *c;

		message.msg_control = control;
		message.msg_controllen = CMSG_SPACE(parcel->fd_count * sizeof(int));
		c = CMSG_FIRSTHDR(&message);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(parcel->fd_count * sizeof(int));
		memcpy(CMSG_DATA(c), parcel->fds, parcel->fd_count * sizeof(int));
	}
	q->tag = ++h->tag;
	return sendmsg(h->channels[worker], &message, MSG_NOSIGNAL) >= 0;
}

struct launch_reply harness_receive_fd(struct harness *h, unsigned worker, int *ret_fd)
{
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = { 0 };
	struct launch_reply reply = { .error = EPIPE };
	struct iovec part = { &reply, sizeof reply };
	struct msghdr message = { .msg_iov = &part,
				  .msg_iovlen = 1,
				  .msg_control = control,
				  .msg_controllen = sizeof control };
	ssize_t bytes = recvmsg(h->channels[worker], &message, MSG_CMSG_CLOEXEC);
	const struct cmsghdr *c = CMSG_FIRSTHDR(&message);

	*ret_fd = -1;
	if (bytes > 0 && c)
		memcpy(ret_fd, CMSG_DATA(c), sizeof(int));
	if (bytes != sizeof reply)
		reply = (struct launch_reply){ .error = EPIPE };
	else
		expect(reply.step < LAUNCH_STEP_COUNT && (reply.error == 0) == (reply.step == 0));
	return reply;
}

struct launch_reply harness_receive(struct harness *h, unsigned worker)
{
	int fd;
	struct launch_reply reply = harness_receive_fd(h, worker, &fd);

	cleanup_close(&fd); /* not asked for */
	return reply;
}

struct launch_reply harness_ask(struct harness *h, unsigned worker, struct launch_request *q,
				const struct parcel *parcel)
{
	struct launch_reply reply = { .error = EPIPE };

	if (harness_send(h, worker, q, parcel))
		reply = harness_receive(h, worker);
	if (reply.error != EPIPE)
		expect(reply.tag == q->tag);
	return reply;
}

struct launch_request harness_request(const struct harness *h, uint32_t op, uint32_t slot)
{
	const struct harness_options *o = &h->options;

	return (struct launch_request){
		.op = op,
		.slot = slot,
		.network = slot,
		.image = HARNESS_IMAGE,
		.limit_ms = o->limit_ms ? o->limit_ms : 2000,
		.uid_base = h->uid_base + slot * 65536,
		.processes_max = o->processes_max,
		.disk_bytes = (o->disk_mib ? o->disk_mib : 16) * 1048576ull,
		.inodes = o->inodes ? o->inodes : 4096,
		.hostname = "sandbox",
	};
}

struct launch_reply harness_op(struct harness *h, uint32_t op, uint32_t slot)
{
	struct launch_request request = harness_request(h, op, slot);

	return harness_ask(h, 0, &request, NULL);
}

/* Sandboxes. */

bool network_is_there(const struct harness *h, uint32_t slot)
{
	char path[64];

	(void)snprintf(path, sizeof path, "nets/%u", slot);
	return faccessat(h->vault.root_fd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

struct box box_start(struct harness *h, uint32_t slot, uint32_t flags)
{
	struct launch_request request = harness_request(h, LAUNCH_SPAWN, slot);
	const struct parcel parcel = { .fds = &h->walls_fd, .fd_count = 1 };
	struct launch_reply reply;

	request.flags = flags | (h->walls_fd ? LAUNCH_WALLS : 0);
	if (flags & LAUNCH_PRIVATE && !network_is_there(h, slot))
		expect(harness_op(h, LAUNCH_NETWORK_MAKE, slot).error == 0);
	reply = harness_ask(h, 0, &request, h->walls_fd ? &parcel : NULL);
	h->spawned = reply;
	if (expect(reply.error == 0 && reply.pid > 0))
		return (struct box){ reply.pid, slot };
	note("spawn: %s at %s", strerror(reply.error), launch_step_name(reply.step));
	if (reply.pid > 0)
		(void)child_reap(reply.pid);
	return (struct box){ 0, slot };
}

void box_stop(const struct box *box)
{
	if (box->pid <= 0)
		return;
	(void)kill(box->pid, SIGKILL); /* not reaped yet: the pid is its own */
	(void)child_reap(box->pid);
}

void box_end(struct harness *h, const struct box *box)
{
	struct launch_reply reply;

	box_stop(box);
	reply = harness_op(h, LAUNCH_DROP, box->slot);
	expect(reply.error == 0);
	if (network_is_there(h, box->slot))
		expect(harness_op(h, LAUNCH_NETWORK_DROP, box->slot).error == 0);
}

static int output_collect(struct harness *h, int fd, pid_t pid)
{
	size_t filled = 0;
	ssize_t bytes;

	while ((bytes = read(fd, h->output + filled, sizeof h->output - 1 - filled)) > 0)
		filled += (size_t)bytes;
	h->output[filled] = 0;
	return child_reap(pid);
}

/* On a terminal, no descriptors go there and one comes back. */
static struct launch_reply exec_ask(struct harness *h, struct launch_request *request,
				    struct parcel *parcel, const struct exec_options *o)
{
	struct launch_reply reply = { .error = EPIPE };

	request->limit_count = o->limit_count;
	parcel->limits = o->limits;
	if (!o->ret_tty)
		return harness_ask(h, o->worker, request, parcel);
	request->flags |= LAUNCH_TTY;
	request->rows = o->rows;
	request->columns = o->columns;
	parcel->fd_count = 0;
	if (harness_send(h, o->worker, request, parcel))
		reply = harness_receive_fd(h, o->worker, o->ret_tty);
	return reply;
}

int harness_exec(struct harness *h, const struct box *box, const char *const *argv,
		 const struct exec_options *o, struct launch_reply *ret_reply)
{
	static const struct exec_options standard;
	static const char *const environment[] = { "PATH=/bin", NULL };
	struct launch_request request = harness_request(h, LAUNCH_EXEC, box->slot);
	struct launch_reply reply;
	auto_close int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	int ends[2], fds[4];

	o = o ? o : &standard;
	if (!expect(pipe2(ends, O_CLOEXEC) == 0))
		return -1;
	fds[0] = o->input_fd;
	fds[1] = fds[2] = !o->leave_alone ? ends[1] : o->output_fd ? o->output_fd : null_fd;
	request.pid = box->pid;
	request.leaf = o->leaf;
	request.flags = o->flags;
	if (o->user)
		(void)snprintf(request.user, sizeof request.user, "%s", o->user);
	struct parcel parcel = {
		.argv = argv,
		.envp = o->envp ? o->envp : environment,
		.cwd = o->cwd,
		.fds = fds + !o->input_fd,
		.fd_count = o->input_fd ? 3 : 2,
	};
	if (h->walls_fd && !o->ret_tty) {
		fds[3] = h->walls_fd;
		parcel.fd_count++;
		request.flags |= LAUNCH_WALLS;
	}

	reply = exec_ask(h, &request, &parcel, o);
	(void)close(ends[1]); /* the program has its own */
	if (ret_reply)
		*ret_reply = reply;
	if (reply.error || o->leave_alone) {
		(void)close(ends[0]); /* nobody reads */
		if (reply.error && reply.pid > 0) {
			(void)kill(reply.pid, SIGKILL); /* not reaped yet: the pid is its own */
			(void)child_reap(reply.pid);
		}
		return reply.error ? -1 : 0;
	}
	int status = output_collect(h, ends[0], reply.pid);

	(void)close(ends[0]); /* read to its end */
	return status;
}

bool probe(struct harness *h, const struct box *box, const char *what, const char *argument)
{
	const char *const argv[] = { "/bin/probe", what, argument, NULL };
	struct launch_reply reply = { 0 };
	int status = harness_exec(h, box, argv, NULL, &reply);

	if (status != 0)
		note("probe %s %s: status %x error %s at %s: %s", what, argument ? argument : "",
		     (unsigned)status, strerror(reply.error), launch_step_name(reply.step),
		     h->output);
	return status == 0;
}

/* Set-up and what is left. */

bool worker_start_another(struct harness *h, unsigned worker)
{
	auto_close int program = open(LAUNCHER_PATH, O_RDONLY | O_CLOEXEC);
	const struct launcher_options options = { .program_fd = program,
						  .vault = &h->vault,
						  .cgroup_fd = h->cgroup_fd,
						  .init_fd = h->init_fd,
						  .helper_fd = h->helper_fd,
						  .proc_fd = h->proc_fd,
						  .shard = worker };

	return expect(program >= 0) &&
	       expect(launcher_start(&options, &h->channels[worker], &h->workers[worker]) == 0);
}

void worker_kill(struct harness *h, unsigned worker)
{
	(void)kill(h->workers[worker], SIGKILL); /* not reaped yet: the pid is its own */
	(void)child_reap(h->workers[worker]);
	(void)close(h->channels[worker]); /* dead */
	h->channels[worker] = -1;
}

static bool cgroup_folder_make(struct harness *h)
{
	const char *root = access("/sys/fs/cgroup/unified/cgroup.procs", F_OK) == 0 ?
				   "/sys/fs/cgroup/unified" :
				   "/sys/fs/cgroup";

	(void)snprintf(h->cgroup_path, sizeof h->cgroup_path, "%s/dsec-test-%d", root, getpid());
	if (!expect(mkdir(h->cgroup_path, 0755) == 0))
		return false;
	h->cgroup_fd = open(h->cgroup_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return expect(h->cgroup_fd >= 0);
}

static bool image_attach(struct harness *h)
{
	struct launch_request request = harness_request(h, LAUNCH_ATTACH, 0);
	int mount_fd = image_mount(h->options.image);
	const struct parcel parcel = { .fds = &mount_fd, .fd_count = 1 };
	struct launch_reply reply;

	if (!expect(mount_fd >= 0))
		return false;
	reply = harness_ask(h, 0, &request, &parcel);
	(void)close(mount_fd); /* it hangs in the vault */
	return expect(reply.error == 0);
}

static bool harness_open(struct harness *h, const struct harness_options *options)
{
	*h = (struct harness){ .options = *options,
			       .vault = { -1, -1, -1 },
			       .cgroup_fd = -1,
			       .init_fd = -1,
			       .helper_fd = -1 };
	/* The kernel counts processes by uid: another run of these tests has its own. Below 2^31:
	 * the terminals of Linux 6.12 know no groups beyond. */
	h->uid_base = 1060000000 + (uint32_t)getpid() % 1000 * (16 * 65536);
	h->proc_fd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	h->worker_count = options->workers ? options->workers : 1;
	if (!expect(h->proc_fd >= 0) || !expect(vault_open(&h->vault) == 0) ||
	    !expect(init_open(&h->init_fd) == 0) || !expect(helper_open(&h->helper_fd) == 0) ||
	    !cgroup_folder_make(h))
		return false;
	for (unsigned i = 0; i < h->worker_count; i++)
		if (!worker_start_another(h, i))
			return false;
	return image_attach(h);
}

static void workers_end(struct harness *h)
{
	for (unsigned i = 0; i < h->worker_count; i++) {
		if (h->workers[i] <= 0)
			continue;
		(void)close(h->channels[i]); /* ends the worker */
		if (!expect(child_reap_within(h->workers[i], 2000)))
			worker_kill(h, i);
	}
}

/* Folders that are left below the test's: each is a failure of the test. */
static unsigned cgroups_left(const struct harness *h)
{
	char command[256], line[256];
	unsigned left = 0;
	FILE *found;

	(void)snprintf(command, sizeof command, "find %s -mindepth 1 -depth -type d",
		       h->cgroup_path);
	found = popen(command, "r");
	while (found && fgets(line, sizeof line, found)) {
		left++;
		line[strcspn(line, "\n")] = 0;
		note("left: %s", line);
		(void)rmdir(line); /* the last resort */
	}
	if (found)
		(void)pclose(found); /* read to its end */
	return left;
}

static void processes_end(const struct harness *h)
{
	auto_close int kill_fd = openat(h->cgroup_fd, "cgroup.kill", O_WRONLY | O_CLOEXEC);
	char events[256] = "";

	(void)text_read_at(h->cgroup_fd, "cgroup.events", events, sizeof events);
	expect(strstr(events, "populated 0"));
	expect(write(kill_fd, "1", 1) == 1);
	for (unsigned i = 0; i < 2000 && !strstr(events, "populated 0"); i++) {
		sleep_ms(1);
		(void)text_read_at(h->cgroup_fd, "cgroup.events", events, sizeof events);
	}
}

/* Slots that still hang in the vault. */
static unsigned slots_left(const struct harness *h)
{
	int fd = openat(h->vault.root_fd, "slots", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	unsigned left = 0;

	while (dir && (entry = readdir(dir)))
		left += entry->d_name[0] != '.';
	if (dir)
		(void)closedir(dir); /* only read */
	return left;
}

static void harness_close(struct harness *h)
{
	workers_end(h);
	expect(slots_left(h) == 0);
	vault_close(&h->vault);
	cleanup_close(&h->init_fd);
	cleanup_close(&h->helper_fd);
	cleanup_close(&h->proc_fd);
	if (h->cgroup_fd >= 0) {
		processes_end(h);
		expect(cgroups_left(h) == 0);
		cleanup_close(&h->cgroup_fd);
		expect(rmdir(h->cgroup_path) == 0);
	}
	/* Zombies too are somebody's that the test forgot. */
	expect(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
}

static unsigned mounts_count(void)
{
	char text[65536];
	unsigned lines = 0;

	(void)text_read_at(AT_FDCWD, "/proc/self/mountinfo", text, sizeof text);
	for (const char *at = text; *at; at++)
		lines += *at == '\n';
	return lines;
}

static unsigned test_run(const struct harness_test *test)
{
	const unsigned mounts = mounts_count();
	auto_free struct harness *h = malloc(sizeof *h);

	failures = 0;
	printf("%s\n", test->name);
	if (harness_open(h, &test->options))
		test->run(h);
	harness_close(h);
	/* Fewer can be: a mount goes with its folder, whoever removes that. */
	expect(mounts_count() <= mounts);
	printf("  %s\n", failures ? "FAILED" : "ok");
	return failures;
}

/* What a careless engine would hand down; nothing of it may arrive in a sandbox. */
static void parent_dirty(void)
{
	const gid_t groups[] = { 4, 20 };
	const struct rlimit cores = { 4096, 4096 };
	sigset_t blocked;

	expect(setgroups(2, groups) == 0);
	(void)signal(SIGHUP, SIG_IGN);
	(void)signal(SIGPIPE, SIG_IGN);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	(void)sigprocmask(SIG_BLOCK, &blocked, NULL);
	(void)umask(077);
	expect(dup2(STDIN_FILENO, 77) == 77); /* without close-on-exec */
	(void)setrlimit(RLIMIT_CORE, &cores); /* where it is 0 already, that is what is tested */
}

int harness_main(int argc, char **argv, const struct harness_test *tests, size_t count)
{
	unsigned tested = 0, failed = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (geteuid() != 0) {
		printf("skipped: the launcher needs root\n");
		return 77;
	}
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1); /* so that nothing a test loses can hide */
	/* The machine's mounts come and go; those of this namespace are the tests' own. */
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
		printf("cannot get a mount namespace: %s\n", strerror(errno));
		return 1;
	}
	parent_dirty();
	image_build();
	for (size_t i = 0; i < count; i++) {
		if (argc > 1 && strcmp(argv[1], tests[i].name) != 0)
			continue;
		tested++;
		failed += test_run(&tests[i]) != 0;
	}
	image_remove();
	printf("Tested: %u\n", tested);
	return failed ? 1 : 0;
}
