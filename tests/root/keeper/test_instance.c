/* Locks and uid ranges of instance.c, below a directory of the test's own. */
#include "engine/keeper/instance.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "engine/base/cleanup.h"
#include "engine/keeper/cgroup_root.h"
#include "engine/config.h"

enum { NAMES = 5, SMALL_ONES = 63, LARGE_FIRST = UID_RANGE_FIRST + SMALL_ONES * (1 << 24) };

struct run {
	char path[64], sockets[NAMES][96];
	struct instance_places places;
	struct config configs[NAMES];
};

static void run_open(struct run *run)
{
	snprintf(run->path, sizeof(run->path), "/tmp/dsec-instance.XXXXXX");
	cr_assert_not_null(mkdtemp(run->path));
	run->places.run = run->path;
	for (int i = 0; i < NAMES; i++) {
		struct config *config = &run->configs[i];

		cr_assert_eq(config_default(config), 0);
		snprintf(config->instance, sizeof(config->instance), "it%d-%d", getpid(), i);
		snprintf(run->sockets[i], sizeof(run->sockets[i]), "%s/%d.sock", run->path, i);
		config->socket_path = run->sockets[i];
	}
}

static void run_close(struct run *run)
{
	char path[96];

	for (int i = 0; i < NAMES; i++)
		config_done(&run->configs[i]);
	for (int k = 0; k < 70; k++) {
		snprintf(path, sizeof(path), "%s/uids/%d", run->path, k);
		(void)unlink(path);
	}
	snprintf(path, sizeof(path), "%s/uids", run->path);
	cr_expect_eq(rmdir(path), 0);
	cr_expect_eq(rmdir(run->path), 0, "an instance left something in %s", run->path);
}

/* Where terminals take group ids below 2^31 only, the large ranges above are of no use. */
static int large_fit(void)
{
	auto_close int fd = fsopen("devpts", FSOPEN_CLOEXEC);

	cr_assert_geq(fd, 0);
	return !fsconfig(fd, FSCONFIG_SET_STRING, "gid", "4000000000", 0) &&
			       !fsconfig(fd, FSCONFIG_CMD_CREATE, NULL, NULL, 0) ?
		       3 :
		       1;
}

static void become_small(struct config *config)
{
	config->sandboxes_max = SLOTS_SMALL - SLOTS_SPARE;
	config->shards = 1;
}

Test(instance, large_ones_fit_below_2_to_the_32_or_31_and_one_more_is_refused)
{
	int fit = large_fit(), last = fit - 1;
	struct run run;
	struct instance in[NAMES];

	run_open(&run);
	for (int i = 0; i < fit; i++) {
		cr_assert_eq(instance_open(&in[i], &run.configs[i], &run.places), 0);
		cr_assert_eq(in[i].uid_first, LARGE_FIRST + i * (1u << 30));
	}
	cr_assert_eq(instance_open(&in[fit], &run.configs[fit], &run.places), -ENOSPC);
	cr_assert_eq(cgroup_root_exists(in[fit].cgroup_name), 0);

	cr_assert_eq(instance_close(&in[last], &run.places), 0);
	cr_assert_eq(instance_open(&in[fit], &run.configs[fit], &run.places), 0);
	cr_assert_eq(in[fit].uid_first, in[last].uid_first);
	cr_assert_eq(instance_close(&in[fit], &run.places), 0);
	for (int i = 0; i < last; i++)
		cr_assert_eq(instance_close(&in[i], &run.places), 0);
	run_close(&run);
}

Test(instance, small_ones_fit_beside_the_large_ones)
{
	int fit = large_fit();
	struct run run;
	struct instance in[NAMES];

	run_open(&run);
	become_small(&run.configs[fit]);
	for (int i = 0; i <= fit; i++)
		cr_assert_eq(instance_open(&in[i], &run.configs[i], &run.places), 0);
	cr_assert_eq(in[fit].uid_first, UID_RANGE_FIRST);
	for (int i = 0; i <= fit; i++)
		cr_assert_eq(instance_close(&in[i], &run.places), 0);
	run_close(&run);
}

/* What a kill -9 does: descriptors go, files and cgroup stay. */
static void instance_forget(struct instance *in)
{
	(void)close(in->sockets[0].fd);
	(void)close(in->cgroup_fd);
	(void)close(in->uids_fd);
	(void)close(in->lock_fd);
}

Test(instance, range_of_a_killed_one_is_not_given_to_another_while_its_cgroup_stands)
{
	struct run run;
	struct instance killed, other, again;

	run_open(&run);
	become_small(&run.configs[0]);
	become_small(&run.configs[1]);
	cr_assert_eq(instance_open(&killed, &run.configs[0], &run.places), 0);
	instance_forget(&killed);

	cr_assert_eq(instance_open(&other, &run.configs[1], &run.places), 0);
	cr_assert_neq(other.uid_first, killed.uid_first);
	cr_assert_eq(instance_open(&again, &run.configs[0], &run.places), 0);
	cr_assert_eq(again.uid_first, killed.uid_first);
	cr_assert_eq(instance_close(&other, &run.places), 0);

	instance_forget(&again);
	cr_assert_eq(cgroup_root_remove(again.cgroup_name), 0);
	cr_assert_eq(instance_open(&other, &run.configs[1], &run.places), 0);
	cr_assert_eq(other.uid_first, killed.uid_first, "nothing can run on it any more");
	cr_assert_eq(instance_close(&other, &run.places), 0);

	/* The killed one's lock and socket are still there: its next start takes them over. */
	cr_assert_eq(instance_open(&again, &run.configs[0], &run.places), 0);
	cr_assert_eq(instance_close(&again, &run.places), 0);
	run_close(&run);
}

Test(instance, same_name_is_refused_and_harms_nothing)
{
	struct run run;
	struct instance first, second;

	run_open(&run);
	cr_assert_eq(instance_open(&first, &run.configs[0], &run.places), 0);
	cr_assert_eq(instance_open(&second, &run.configs[0], &run.places), -EBUSY);
	cr_assert_eq(access(first.sockets[0].path, F_OK), 0);
	cr_assert_eq(cgroup_root_exists(first.cgroup_name), 1);
	cr_assert_eq(instance_close(&first, &run.places), 0);
	run_close(&run);
}

Test(instance, same_socket_of_two_names_is_refused)
{
	struct run run;
	struct instance first, second;

	run_open(&run);
	become_small(&run.configs[1]);
	run.configs[1].socket_path = run.sockets[0];
	cr_assert_eq(instance_open(&first, &run.configs[0], &run.places), 0);
	cr_assert_eq(instance_open(&second, &run.configs[1], &run.places), -EBUSY);
	cr_assert_eq(access(first.sockets[0].path, F_OK), 0);
	cr_assert_eq(instance_close(&first, &run.places), 0);
	run_close(&run);
}

/* Many start and end at once: whoever has the lock has it alone. */
static int contender(struct run *run, int counter_fd)
{
	for (int won = 0; won < 40;) {
		struct instance in;
		int r = instance_open(&in, &run->configs[0], &run->places);
		char byte = 0;

		if (r == -EBUSY)
			continue;
		if (r < 0)
			return 1;
		/* Read, yield, write: a second holder would be seen. */
		if (pread(counter_fd, &byte, 1, 0) != 1 || byte != 0)
			return 2;
		byte = 1;
		if (pwrite(counter_fd, &byte, 1, 0) != 1)
			return 1;
		usleep(100);
		byte = 0;
		if (pwrite(counter_fd, &byte, 1, 0) != 1)
			return 1;
		if (instance_close(&in, &run->places) < 0)
			return 3;
		won++;
	}
	return 0;
}

Test(instance, contenders_for_one_name_hold_it_one_at_a_time)
{
	struct run run;
	char name[] = "/tmp/dsec-counter.XXXXXX";
	auto_close int counter_fd = mkstemp(name);
	int pids[4], status;

	cr_assert_geq(counter_fd, 0);
	cr_assert_eq(unlink(name), 0);
	cr_assert_eq(write(counter_fd, "", 1), 1);
	run_open(&run);
	for (int i = 0; i < 4; i++) {
		pids[i] = fork();
		if (pids[i] == 0)
			_exit(contender(&run, counter_fd));
	}
	for (int i = 0; i < 4; i++) {
		cr_assert_eq(waitpid(pids[i], &status, 0), pids[i]);
		cr_expect_eq(status, 0, "contender %d: status %x", i, status);
	}
	run_close(&run);
}
