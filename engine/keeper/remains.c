/*
 * Looks for dead private instances and becomes each for a moment: takes its lock, its uids, its
 * cgroup root and its socket, sweeps, and gives everything back. Called by the keeper before its
 * engine starts. What must hold: an instance that somebody runs keeps its lock, so it is never
 * taken; one that is being started has a young lock.
 */
#include "engine/keeper/remains.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/config.h"
#include "engine/engine.h"
#include "engine/keeper/instance.h"

enum { AGE_MIN_S = 60, REMAINS_MAX = 32 };

static const char prefix[] = "private-";

/* Nobody holds its lock, and not because somebody is just about to. */
static bool is_dead(int run_fd, const char *name)
{
	char path[NAME_MAX + 8];
	auto_close int fd = -1;
	struct stat info;

	(void)snprintf(path, sizeof(path), "%s/lock", name); /* fits */
	fd = openat(run_fd, path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	return fd >= 0 && fstat(fd, &info) == 0 && time(NULL) - info.st_mtime >= AGE_MIN_S &&
	       flock(fd, LOCK_EX | LOCK_NB) == 0;
}

/* The path of our socket with its name in the place of ours; false: ours does not have it. */
static bool socket_of(const struct config *config, const char *name, char ret[static 108])
{
	const char *at = strstr(config->socket_path, config->instance);
	int bytes;

	if (!at)
		return false;
	bytes = snprintf(ret, 108, "%.*s%s%s", (int)(at - config->socket_path), config->socket_path,
			 name, at + strlen(config->instance));
	return bytes < 108;
}

static void remains_remove(const struct config *config, const struct instance_places *places,
			   const char *name)
{
	struct config dead = *config;
	struct engine_handover handover = { .cgroup_fd = -1 };
	struct instance instance;
	char socket[108];
	int r;

	if (strlen(name) >= sizeof(dead.instance) || !socket_of(config, name, socket))
		return;
	strcpy(dead.instance, name);
	dead.socket_path = socket;
	dead.tenant_count = 1; /* our tenants' sockets are ours */
	r = instance_open(&instance, &dead, places);
	if (r < 0)
		return; /* it said why */
	handover.cgroup_fd = instance.cgroup_fd;
	r = engine_sweep(&dead, &handover);
	if (instance_close(&instance, places) < 0 || r < 0)
		log_warning("instance %s was killed, and something of it stays, continuing", name);
	else
		log_info("instance %s was killed: what it left is removed", name);
}

static void remains_look(const struct config *config, const struct instance_places *places)
{
	int run_fd = open(places->run, O_RDONLY | O_DIRECTORY | O_CLOEXEC), count = 0;
	DIR *dir = run_fd < 0 ? NULL : fdopendir(run_fd);
	struct dirent *entry;

	while (dir && count < REMAINS_MAX && (entry = readdir(dir))) {
		if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0 ||
		    !is_dead(run_fd, entry->d_name))
			continue;
		remains_remove(config, places, entry->d_name);
		count++;
	}
	if (dir)
		(void)closedir(dir); /* only read; run_fd with it */
}

void remains_sweep(const struct config *config, const struct instance_places *places)
{
	int status = 0, pid;

	if (strncmp(config->instance, prefix, strlen(prefix)) != 0)
		return; /* somebody named it, and knows where the others' sockets are */
	/* In a process of its own: it takes locks, and may wait or crash like what it sweeps. */
	pid = fork();
	if (pid == 0) {
		remains_look(config, places);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
		log_warning("what killed private engines left was not looked for, continuing");
}
