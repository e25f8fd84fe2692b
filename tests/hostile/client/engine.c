/*
 * Starting, watching and ending a dsecd. Called by claims.c. The program ends when the machine
 * cannot do what is needed; what the engine does wrong is told to the caller.
 */
#include "tests/hostile/client/engine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/cleanup.h"

enum { READY_S = 60, ARGUMENTS_MAX = 32 };

static void must(bool good, const char *what)
{
	if (good)
		return;
	printf("cannot go on: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void image_make(const char *folder)
{
	char command[1024];

	(void)snprintf(command, sizeof command,
		       "cd %s && mkdir -p images root/bin root/dev/pts root/dev/shm root/etc "
		       "root/proc root/root root/sys root/tmp && chmod 1777 root/tmp && "
		       "cp " PAYLOAD_PATH " root/bin/payload && "
		       "mkfs.erofs --quiet images/tiny.erofs root >mkfs.log 2>&1",
		       folder);
	must(system(command) == 0, command);
}

static void engine_become(const struct engine *engine, const struct engine_options *options,
			  int ready_fd)
{
	char instance[32], images[96], state[96], ready[16];
	const char *arguments[ARGUMENTS_MAX] = { DSECD_PATH,	 "--instance", instance, "--socket",
						 engine->socket, "--images",   images,	 "--state",
						 state,		 "--ready-fd", ready };
	int log = open(engine->log, O_WRONLY | O_CREAT | O_APPEND, 0600);
	int count = 11;

	(void)snprintf(instance, sizeof instance, "hostile-%d", getppid());
	(void)snprintf(images, sizeof images, "%s/images", engine->folder);
	(void)snprintf(state, sizeof state, "%s/state", engine->folder);
	(void)snprintf(ready, sizeof ready, "%d", ready_fd);
	for (int i = 0; options->arguments[i]; i++)
		arguments[count++] = options->arguments[i];
	if (options->descriptors_max) {
		const struct rlimit limit = { options->descriptors_max, options->descriptors_max };

		must(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
	}
	(void)dup2(log, 1);
	(void)dup2(log, 2);
	(void)prctl(PR_SET_PDEATHSIG, SIGTERM); /* the test may be killed by its time limit */
	execv(DSECD_PATH, (char *const *)arguments);
	_exit(127);
}

void engine_log_print(const struct engine *engine)
{
	auto_free char *line = NULL;
	size_t room = 0;
	FILE *log = fopen(engine->log, "re");

	while (log && getline(&line, &room, log) > 0)
		printf("  | %s", line);
	if (log)
		(void)fclose(log);
}

static bool log_has(const struct engine *engine, const char *what)
{
	auto_free char *line = NULL;
	FILE *log = fopen(engine->log, "re");
	size_t room = 0;
	bool found = false;

	while (log && getline(&line, &room, log) > 0)
		found |= strstr(line, what) != NULL;
	if (log)
		(void)fclose(log);
	return found;
}

void engine_start(const struct engine_options *options, struct engine *ret)
{
	char ready[8] = "";
	int pair[2];

	*ret = (struct engine){ .folder = "/tmp/dsec-hostile.XXXXXX" };
	must(mkdtemp(ret->folder), "mkdtemp");
	(void)snprintf(ret->socket, sizeof ret->socket, "%s/socket", ret->folder);
	(void)snprintf(ret->log, sizeof ret->log, "%s/log", ret->folder);
	image_make(ret->folder);
	must(pipe(pair) == 0, "pipe");
	(void)fflush(stdout);
	ret->keeper = fork();
	must(ret->keeper >= 0, "fork");
	if (ret->keeper == 0) {
		(void)close(pair[0]);
		engine_become(ret, options, pair[1]);
	}
	(void)close(pair[1]);
	if (read(pair[0], ready, sizeof ready) <= 0) {
		bool taken = log_has(ret, "all uid ranges are taken");

		(void)engine_stop(ret);
		if (taken)
			printf("skipped: other engines have all uid ranges\n");
		exit(taken ? 77 : 1);
	}
	(void)close(pair[0]);
	ret->pid = engine_pid(ret);
	must(ret->pid > 0, "no engine below the keeper");
}

pid_t engine_pid(const struct engine *engine)
{
	char path[64];
	FILE *file;
	int pid = 0;

	(void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", engine->keeper,
		       engine->keeper);
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (fscanf(file, "%d", &pid) != 1)
		pid = 0;
	(void)fclose(file);
	return pid;
}

bool engine_stop(struct engine *engine)
{
	char command[128];
	int status = 0;
	bool good;

	(void)kill(engine->keeper, SIGTERM);
	if (waitpid(engine->keeper, &status, 0) != engine->keeper)
		return false;
	good = WIFEXITED(status) && WEXITSTATUS(status) == 0 &&
	       log_has(engine, "stopped, nothing is left");
	if (!good) {
		printf("the engine ended with status 0x%x\n", (unsigned)status);
		engine_log_print(engine);
	}
	(void)snprintf(command, sizeof command, "rm -rf --one-file-system '%s'", engine->folder);
	return system(command) == 0 && good;
}

uint32_t engine_descriptors(const struct engine *engine)
{
	struct dirent *entry;
	uint32_t count = 0;
	char path[64];
	DIR *folder;

	(void)snprintf(path, sizeof path, "/proc/%d/fd", engine->pid);
	folder = opendir(path);
	while (folder && (entry = readdir(folder)))
		count += entry->d_name[0] != '.';
	if (folder)
		(void)closedir(folder);
	return count;
}

uint32_t engine_descriptor_places(const struct engine *engine)
{
	uint32_t places = 0;
	char path[64], line[256];
	FILE *file;

	(void)snprintf(path, sizeof path, "/proc/%d/status", engine->pid);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof line, file))
		if (sscanf(line, "FDSize: %u", &places) == 1)
			break;
	if (file)
		(void)fclose(file);
	return places;
}

uint32_t engine_descriptor_limit(const struct engine *engine, uint32_t spare)
{
	uint32_t limit = 0;
	char path[64];

	for (;; limit++) {
		(void)snprintf(path, sizeof path, "/proc/%d/fd/%u", engine->pid, limit);
		if (faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && spare-- == 0)
			return limit;
	}
}

uint64_t engine_resident_bytes(const struct engine *engine)
{
	unsigned long long total = 0, resident = 0;
	char path[64];
	FILE *file;

	(void)snprintf(path, sizeof path, "/proc/%d/statm", engine->pid);
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (fscanf(file, "%llu %llu", &total, &resident) != 2)
		resident = 0;
	(void)fclose(file);
	return resident * 4096;
}

uint64_t engine_cpu_us(const struct engine *engine)
{
	unsigned long long user = 0, system = 0;
	char path[64];
	FILE *file;

	(void)snprintf(path, sizeof path, "/proc/%d/stat", engine->pid);
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (fscanf(file, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user,
		   &system) != 2)
		user = system = 0;
	(void)fclose(file);
	return (user + system) * (1000000ull / (unsigned long long)sysconf(_SC_CLK_TCK));
}
