/*
 * Runs inside calls of one function: its input is "plant WAY" or "look WAY". What one call plants
 * the next must not see. Writes its pid first, by which a new set of namespaces shows; then what it
 * sees; nothing is nothing. "planted" or "refused" is what came of planting.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <dirent.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { KEY = 0x64736563, MARK_FD = 9, MARK_NICE = 7, MARK_FILES = 77 };

#define MARK "/tmp/mark"

static bool is_there(const char *path)
{
	return access(path, F_OK) == 0;
}

/* Who holds what dies last: in a session of its own, deaf to what can be ignored. */
static void child_leave(void)
{
	if (fork())
		return;
	(void)setsid();
	if (fork())
		_exit(0);
	for (int signal = 1; signal < 32; signal++)
		(void)sigaction(signal, &(struct sigaction){ .sa_handler = SIG_IGN }, NULL);
	(void)close(1);
	(void)close(2);
	for (;;)
		(void)pause();
}

static long file_plant(void)
{
	return open(MARK, O_CREAT | O_RDWR, 0600);
}

static bool file_look(void)
{
	return is_there(MARK);
}

static long gone_plant(void)
{
	int fd = open(MARK, O_CREAT | O_RDWR, 0600);

	return fd < 0 ? fd : unlink(MARK);
}

static long root_plant(void)
{
	return chmod("/", 0700);
}

static bool root_look(void)
{
	struct stat st;

	return stat("/", &st) < 0 || (st.st_mode & 07777) != 0755;
}

static long device_plant(void)
{
	return chmod("/dev/null", 0600);
}

static bool device_look(void)
{
	struct stat st;

	return stat("/dev/null", &st) < 0 || (st.st_mode & 07777) != 0666;
}

static mode_t pts_mode(void)
{
	struct stat st;

	return stat("/dev/pts", &st) < 0 ? 0 : st.st_mode & 07777;
}

static long pts_plant(void)
{
	return chmod("/dev/pts", 0711);
}

static bool pts_look(void)
{
	return pts_mode() == 0711;
}

static long memory_plant(void)
{
	return open("/dev/shm/mark", O_CREAT | O_RDWR, 0600);
}

static bool memory_look(void)
{
	return is_there("/dev/shm/mark");
}

static long segment_plant(void)
{
	return shmget(KEY, 4096, IPC_CREAT | 0600);
}

static bool segment_look(void)
{
	return shmget(KEY, 0, 0) >= 0;
}

static long semaphore_plant(void)
{
	return semget(KEY, 1, IPC_CREAT | 0600);
}

static bool semaphore_look(void)
{
	return semget(KEY, 0, 0) >= 0;
}

static long message_plant(void)
{
	return msgget(KEY, IPC_CREAT | 0600);
}

static bool message_look(void)
{
	return msgget(KEY, 0) >= 0;
}

static long queue_plant(void)
{
	return syscall(SYS_mq_open, "mark", O_CREAT | O_RDWR, 0600, NULL);
}

static bool queue_look(void)
{
	return syscall(SYS_mq_open, "mark", O_RDWR, 0, NULL) >= 0;
}

static long key_plant(void)
{
	return syscall(SYS_add_key, "user", "mark", "x", 1L, -5L /* the user's session */);
}

static bool key_look(void)
{
	return syscall(SYS_keyctl, 10L /* SEARCH */, -5L, "user", "mark", 0L) >= 0;
}

static long name_plant(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "\0mark" };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	long r = bind(fd, (struct sockaddr *)&address, offsetof(struct sockaddr_un, sun_path) + 5);

	if (r >= 0)
		r = listen(fd, 1);
	if (r >= 0)
		child_leave(); /* and it holds the socket */
	return r;
}

static bool name_look(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "\0mark" };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	return bind(fd, (struct sockaddr *)&address, offsetof(struct sockaddr_un, sun_path) + 5) <
	       0;
}

static long child_plant(void)
{
	child_leave();
	return 0;
}

/* Anybody but PID 1 and this one. */
static bool child_look(void)
{
	DIR *proc = opendir("/proc");
	bool others = false;

	for (struct dirent *entry; proc && (entry = readdir(proc));) {
		long pid = strtol(entry->d_name, NULL, 10);

		others |= pid > 1 && pid != getpid();
	}
	return !proc || others;
}

static long timer_plant(void)
{
	const struct itimerspec when = { .it_value.tv_sec = 1000 };
	timer_t timer;

	if (timer_create(CLOCK_REALTIME, NULL, &timer) < 0)
		return -1;
	return timer_settime(timer, 0, &when, NULL);
}

static bool timer_look(void)
{
	char text[64];
	int fd = open("/proc/self/timers", O_RDONLY);

	return fd >= 0 && read(fd, text, sizeof text) > 0;
}

static long limit_plant(void)
{
	return setrlimit(RLIMIT_NOFILE, &(struct rlimit){ MARK_FILES, MARK_FILES });
}

static bool limit_look(void)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == MARK_FILES;
}

/* Environment, umask, folder, descriptors, priority: of a process, and of no other. */
static long process_plant(void)
{
	(void)umask(0);
	(void)setenv("MARK", "x", 1);
	(void)dup2(1, MARK_FD);
	(void)setpriority(PRIO_PROCESS, 0, MARK_NICE);
	return chdir("/tmp");
}

static bool process_look(void)
{
	char folder[64] = "";

	return umask(022) != 022 || getenv("MARK") || fcntl(MARK_FD, F_GETFD) >= 0 ||
	       getpriority(PRIO_PROCESS, 0) || !getcwd(folder, sizeof folder) ||
	       !strcmp(folder, "/tmp");
}

static long lock_plant(void)
{
	return flock(open("/bin/sh", O_RDONLY), LOCK_EX | LOCK_NB);
}

static bool lock_look(void)
{
	return flock(open("/bin/sh", O_RDONLY), LOCK_EX | LOCK_NB) < 0;
}

static long init_nice_plant(void)
{
	return setpriority(PRIO_PROCESS, 1, MARK_NICE);
}

static bool init_nice_look(void)
{
	return getpriority(PRIO_PROCESS, 1) != 0;
}

static long init_limit_plant(void)
{
	const struct rlimit limit = { MARK_FILES, MARK_FILES };

	return prlimit(1, RLIMIT_NOFILE, &limit, NULL);
}

static bool init_limit_look(void)
{
	struct rlimit limit;

	return prlimit(1, RLIMIT_NOFILE, NULL, &limit) == 0 && limit.rlim_cur == MARK_FILES;
}

static long init_cpu_plant(void)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(0, &one);
	return sched_setaffinity(1, sizeof one, &one);
}

static bool init_cpu_look(void)
{
	cpu_set_t cpus;

	return sched_getaffinity(1, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) == 1;
}

static long setting_plant(void)
{
	int fd = open("/proc/sys/user/max_inotify_watches", O_WRONLY);

	return fd < 0 ? fd : write(fd, "4711", 4);
}

static bool setting_look(void)
{
	char text[16] = "";
	int fd = open("/proc/sys/user/max_inotify_watches", O_RDONLY);

	return fd >= 0 && read(fd, text, sizeof text - 1) > 0 && !strncmp(text, "4711", 4);
}

static long host_plant(void)
{
	return sethostname("mark", 4);
}

static bool host_look(void)
{
	char name[64] = "";

	return gethostname(name, sizeof name) < 0 || !strcmp(name, "mark");
}

static const struct {
	const char *name;
	long (*plant)(void);
	bool (*look)(void);
} ways[] = {
	{ "file", file_plant, file_look },
	{ "file-gone", gone_plant, file_look },
	{ "root", root_plant, root_look },
	{ "device", device_plant, device_look },
	{ "pts", pts_plant, pts_look },
	{ "shared-memory", memory_plant, memory_look },
	{ "segment", segment_plant, segment_look },
	{ "semaphore", semaphore_plant, semaphore_look },
	{ "message", message_plant, message_look },
	{ "queue", queue_plant, queue_look },
	{ "key", key_plant, key_look },
	{ "name", name_plant, name_look },
	{ "child", child_plant, child_look },
	{ "timer", timer_plant, timer_look },
	{ "limit", limit_plant, limit_look },
	{ "process", process_plant, process_look },
	{ "lock", lock_plant, lock_look },
	{ "init-nice", init_nice_plant, init_nice_look },
	{ "init-limit", init_limit_plant, init_limit_look },
	{ "init-cpu", init_cpu_plant, init_cpu_look },
	{ "setting", setting_plant, setting_look },
	{ "host", host_plant, host_look },
};

int main(void)
{
	char verb[16] = "", name[32] = "";

	if (scanf("%15s %31s", verb, name) != 2)
		return 2;
	printf("%d", getpid());
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
		if (strcmp(ways[i].name, name) != 0)
			continue;
		if (!strcmp(verb, "plant"))
			printf(" %s\n", ways[i].plant() < 0 ? "refused" : "planted");
		else
			printf("%s\n", ways[i].look() ? " seen" : "");
		return fflush(stdout) == EOF;
	}
	return 3;
}
