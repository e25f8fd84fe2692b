/*
 * What sandboxes run: `policy-attack GROUP` says a line for each attack of the group, its name and
 * the errno it got, 0 where it worked. Their paths are those of the root; what one did is undone
 * before the next, as far as the policy lets it.
 */
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/hostile/policy/attack.h"

static int gone(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st, (void)type, (void)at;
	return remove(path);
}

static void file_restore(const char *path)
{
	const int from = open("/proc/self/exe", O_RDONLY);
	int to = open(path, O_CREAT | O_WRONLY, 0755);
	struct stat st;

	if (fstat(from, &st) == 0)
		(void)sendfile(to, from, NULL, (size_t)st.st_size); /* or it is held */
	(void)close(from);					    /* only read */
	(void)close(to);					    /* or it could not be run */
}

static void undo(void)
{
	static const char *const made[] = {
		"home/own",	   "home/away", "home/bin",	 "home/usr",   "home/way",
		"home/link",	   "home/d",	"home/alias",	 "home/mask",  "home/nested",
		"home/store",	   "tmp/link",	"tmp/second",	 "tmp/answer", "tmp/copy",
		"run/other",	   "bin/fresh", "run/forbidden", "bin/folder", "bin/fifo",
		"etc/__pycache__",
	};
	static const char *const needed[] = { "bin/busybox", "etc/passwd", "usr/bin/answer" };
	struct stat st;

	for (unsigned i = 0; i < sizeof made / sizeof *made; i++)
		(void)nftw(made[i], gone, 16, FTW_DEPTH | FTW_PHYS); /* most are not there */
	for (unsigned i = 0; i < sizeof needed / sizeof *needed; i++)
		if (stat(needed[i], &st) < 0 || st.st_size == 0)
			file_restore(needed[i]);
}

int main(int argc, char **argv)
{
	/* One of the attacks is to run a copy of this. */
	if (argc < 2 || !strcmp(argv[1], "exit"))
		return 0;
	if (chdir("/") < 0)
		return 1;
	for (unsigned g = 0; g < ATTACK_GROUPS; g++) {
		const struct attack_group *group = attack_groups[g];

		for (unsigned i = 0; !strcmp(group->name, argv[1]) && i < group->count; i++) {
			undo();
			printf("%s %d\n", group->attacks[i].name,
			       attack_try(&group->attacks[i], false));
			(void)fflush(stdout);
		}
	}
	return 0;
}
