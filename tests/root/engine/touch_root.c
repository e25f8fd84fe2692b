/*
 * Runs inside sandboxes: changes the root file system in one way, or looks whether anything of it
 * is there: `touch_root WAY`, `touch_root look`, `touch_root age`. Exit 0, or 1 with a line that
 * says what failed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

static int failures;

static void must(long r, const char *what)
{
	if (r >= 0)
		return;
	printf("%s: %s\n", what, strerrorname_np(errno));
	failures++;
}

static void write_file(void)
{
	int fd = open("/mark", O_CREAT | O_WRONLY, 0644);

	must(write(fd, "x", 1), "write");
}

static void mkdir_rmdir(void)
{
	must(mkdir("/mark", 0755), "mkdir");
	must(rmdir("/mark"), "rmdir");
}

static void create_unlink(void)
{
	must(open("/mark", O_CREAT | O_WRONLY, 0644), "open");
	must(unlink("/mark"), "unlink");
}

static void change_mode(void)
{
	must(chmod("/", 0711), "chmod");
}

static void change_owner(void)
{
	must(chown("/", 7, 7), "chown");
}

static void change_times(void)
{
	const struct timespec times[2] = { { 1000, 1 }, { 2000, 2 } };

	must(utimensat(AT_FDCWD, "/", times, 0), "utimensat");
}

static void set_attribute(void)
{
	must(setxattr("/", "user.mark", "note", 4, 0), "setxattr");
}

static void set_remove_attribute(void)
{
	set_attribute();
	must(removexattr("/", "user.mark"), "removexattr");
}

static const char attributed[] = "/tmp/t/x/run";

/* As setcap(8): cap_net_bind_service=ep. */
static void attributes_set(void)
{
	static const unsigned char capability[20] = { 1, 0, 0, 2, 0, 4 };

	must(setxattr(attributed, "user.mark", "note", 4, 0), "setxattr");
	must(setxattr(attributed, "security.capability", capability, sizeof capability, 0),
	     "capability");
}

static void attributes_say(void)
{
	unsigned char bytes[64] = "";
	ssize_t count = getxattr(attributed, "user.mark", bytes, sizeof bytes);

	must(count, "getxattr");
	printf("%.*s ", (int)count, (const char *)bytes);
	count = getxattr(attributed, "security.capability", bytes, sizeof bytes);
	must(count, "capability");
	for (ssize_t i = 0; i < count; i++)
		printf("%02x", bytes[i]);
	printf("\n");
}

/* Of the image: the mapping makes no copy, the opening does. */
static void map_write(void)
{
	int fd = open("/etc/passwd", O_RDWR);
	char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (map == MAP_FAILED) {
		must(-1, "mmap");
		return;
	}
	map[0] = 'R';
	must(msync(map, 4096, MS_SYNC), "msync");
}

static void hard_link(void)
{
	must(link("/etc/passwd", "/etc/mark"), "link");
}

static void whiteout(void)
{
	must(unlink("/etc/passwd"), "unlink");
}

static void rename_file(void)
{
	must(rename("/etc/passwd", "/etc/mark"), "rename");
}

static void symbolic_link(void)
{
	must(symlink("/etc/passwd", "/tmp/mark"), "symlink");
}

static void shared_memory(void)
{
	must(open("/dev/shm/mark", O_CREAT | O_WRONLY, 0644), "open");
}

static void unnamed_file(void)
{
	char bytes[4096] = "x";
	int fd = open("/", O_TMPFILE | O_RDWR, 0600);

	must(fd, "O_TMPFILE");
	for (int i = 0; i < 64; i++)
		must(write(fd, bytes, sizeof bytes), "write");
}

static void read_only(void)
{
	char bytes[64];
	int fd = open("/etc/passwd", O_RDONLY);

	must(read(fd, bytes, sizeof bytes), "read");
	must(access("/nowhere/at/all", F_OK) == -1 ? 0 : -1, "access");
}

/* Everything that any of the ways above would show. */
static void look(void)
{
	static const char *const marks[] = { "/mark", "/etc/mark", "/tmp/mark", "/dev/shm/mark" };
	char bytes[8] = "";
	struct stat root, file;

	for (unsigned i = 0; i < sizeof marks / sizeof *marks; i++)
		if (lstat(marks[i], &file) == 0) {
			printf("%s is there\n", marks[i]);
			failures++;
		}
	must(stat("/", &root), "stat");
	if ((root.st_mode & 07777) != 0755 || root.st_uid || root.st_gid) {
		printf("/ is %o of %d:%d\n", root.st_mode & 07777, root.st_uid, root.st_gid);
		failures++;
	}
	if (root.st_mtim.tv_sec == 2000 || root.st_atim.tv_sec == 1000) {
		printf("/ has the times it was given\n");
		failures++;
	}
	if (getxattr("/", "user.mark", bytes, sizeof bytes) >= 0) {
		printf("/ has the attribute\n");
		failures++;
	}
	must(read(open("/etc/passwd", O_RDONLY), bytes, 5), "passwd");
	if (memcmp(bytes, "root:", 5) != 0) {
		printf("passwd begins with %.5s\n", bytes);
		failures++;
	}
	must(stat("/etc/passwd", &file), "stat of passwd");
	if (file.st_nlink != 1) {
		printf("passwd has %lu names\n", (unsigned long)file.st_nlink);
		failures++;
	}
}

/* Which root this is: a tmpfs has a random id of its own, and nothing changed / since. */
static void age(void)
{
	struct statfs files;
	struct stat root;

	must(statfs("/", &files), "statfs");
	must(stat("/", &root), "stat");
	printf("%08x%08x %lld.%09ld\n", (unsigned)files.f_fsid.__val[0],
	       (unsigned)files.f_fsid.__val[1], (long long)root.st_ctim.tv_sec,
	       root.st_ctim.tv_nsec);
}

static const struct {
	const char *name;
	void (*run)(void);
} ways[] = {
	{ "write", write_file },
	{ "mkdir-rmdir", mkdir_rmdir },
	{ "create-unlink", create_unlink },
	{ "chmod", change_mode },
	{ "chown", change_owner },
	{ "utimensat", change_times },
	{ "setxattr", set_attribute },
	{ "setxattr-removexattr", set_remove_attribute },
	{ "attributes-set", attributes_set },
	{ "attributes-say", attributes_say },
	{ "mmap", map_write },
	{ "link", hard_link },
	{ "whiteout", whiteout },
	{ "rename", rename_file },
	{ "symlink", symbolic_link },
	{ "shm", shared_memory },
	{ "tmpfile", unnamed_file },
	{ "read", read_only },
	{ "look", look },
	{ "age", age },
};

int main(int argc, char **argv)
{
	for (unsigned i = 0; argc > 1 && i < sizeof ways / sizeof *ways; i++) {
		if (strcmp(argv[1], ways[i].name) != 0)
			continue;
		ways[i].run();
		return failures ? 1 : 0;
	}
	printf("no such way\n");
	return 2;
}
