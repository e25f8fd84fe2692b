/*
 * Owns the overlay, the cgroups and the policies of the test beside it. Called by it alone; what
 * fails here ends the test.
 */
#include "tests/hostile/policy/place.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "tests/hostile/policy/attack.h"

static struct policy *policy_of(const char *text, uint32_t number)
{
	struct policy_mistake mistake = { 0 };
	struct policy_document *document;
	struct policy *policy;

	cr_assert_eq(policy_document_read(text, strlen(text), &document, &mistake), 0, "%s",
		     mistake.text);
	cr_assert_eq(policy_compile(document, NULL, NULL, &policy, &mistake), 0, "%s",
		     mistake.text);
	policy_document_free(document);
	policy->guard.number = number;
	return policy;
}

static void file_make(const char *path, const char *text)
{
	const int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0755);

	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text), "%s", path);
	close(fd);
}

void place_root(const struct place *place)
{
	static const char *const folders[] = { "low",	  "up",	      "work",	 "root",
					       "low/bin", "low/etc",  "low/usr", "low/usr/bin",
					       "low/srv", "low/home", "low/tmp", "low/run" };

	cr_assert_eq(chdir(place->folder), 0);
	cr_assert_eq(mount("place", place->folder, "tmpfs", 0, NULL), 0);
	cr_assert_eq(chdir(place->folder), 0);
	for (unsigned i = 0; i < sizeof folders / sizeof *folders; i++)
		cr_assert_eq(mkdir(folders[i], 0755), 0);
	file_make("low/bin/busybox", "program");
	file_make("low/etc/passwd", "root");
	file_make("low/usr/bin/answer", "#!/bin/true\n");
	file_make("low/srv/answer", "secret");
	cr_assert_eq(mount("overlay", "root", "overlay", 0,
			   "lowerdir=low,upperdir=up,workdir=work,redirect_dir=on"),
		     0, "%s", strerror(errno));
	cr_assert_eq(mount("mask", "root/srv", "tmpfs", MS_RDONLY, NULL), 0);
	cr_assert_eq(chdir("root"), 0);
}

void place_leave(const struct place *place)
{
	cr_assert_eq(chdir("/"), 0);
	cr_assert_eq(umount2(place->folder, MNT_DETACH), 0);
}

/* In the neighbour's cgroup: whoever is outside of the sandbox. */
static pid_t victim_start(const struct tree *tree)
{
	const pid_t pid = tree_fork(tree, TREE_SLOT1, 0);
	char text[16];

	cr_assert(pid >= 0);
	if (pid == 0) {
		sigset_t blocked;

		sigemptyset(&blocked);
		sigaddset(&blocked, SIGUSR2);
		sigprocmask(SIG_BLOCK, &blocked, NULL);
		for (;;)
			pause();
	}
	snprintf(text, sizeof(text), "%d", pid);
	setenv("ATTACK_OUTSIDE", text, 1);
	return pid;
}

void place_make(struct place *place)
{
	struct guard_options options;
	char why[4096];

	tree_make(&place->tree);
	options = tree_options(&place->tree);
	cr_assert_eq(guard_open(&options, why, sizeof(why), &place->guard), 0);
	cr_assert(guard_capabilities(place->guard) & GUARD_POLICIES, "%s", why);
	place->attacked = policy_of(POLICY_TEXT, 7);
	place->closed = policy_of(POLICY_CLOSED_TEXT, 8);
	strcpy(place->folder, "/tmp/dsec-attacks-XXXXXX");
	cr_assert(mkdtemp(place->folder));
	cr_assert_eq(unshare(CLONE_NEWNS), 0);
	cr_assert_eq(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	place->stage = (struct stage){ .victim = victim_start(&place->tree),
				       .inside_id = place->tree.ids[TREE_SLOT0],
				       .neighbour_id = place->tree.ids[TREE_SLOT1] };
	setenv("ATTACK_PROGRAM", "/bin/true", 1);
	/* Else their abstract names are refused for another reason. */
	cr_assert_eq(guard_network_set(place->guard, place->tree.ids[TREE_SLOT0], true), 0);
	cr_assert_eq(guard_network_set(place->guard, place->tree.ids[TREE_SLOT1], true), 0);
	if (!(guard_capabilities(place->guard) & GUARD_LSM))
		return;
	cr_assert_eq(guard_policy_load(place->guard, &place->attacked->guard), 0);
	cr_assert_eq(guard_policy_load(place->guard, &place->closed->guard), 0);
}

void place_remove(struct place *place)
{
	(void)rmdir(place->folder);
	guard_violations_close(place->stage.told);
	guard_close(place->guard);
	tree_remove(&place->tree); /* and the victim with it */
	policy_free(place->attacked);
	policy_free(place->closed);
}

void place_hold(struct place *place, const struct policy *policy)
{
	struct guard_sandbox sandbox = { .sandbox = 1, .policy = policy->guard.number };
	struct stat st;

	cr_assert_eq(stat(".", &st), 0);
	sandbox.root_device = st.st_dev;
	cr_assert_eq(guard_sandbox_set(place->guard, place->tree.ids[TREE_SLOT0], &sandbox), 0);
}
