/*
 * Attacks on files that are protected, read-only, hidden or not to be run: by name, by link, by
 * descriptor, by other entries, and by changing what stands on the way. See attack.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/io_uring.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "bpf/policy.h"
#include "tests/hostile/policy/attack.h"

#define FRESH	     "bin/fresh"
#define COPY	     "tmp/copy"
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- opening ---- */

static int open_for_writing(void)
{
	return TRIED(open(KEPT, O_WRONLY));
}

static int open_and_empty(void)
{
	return TRIED(open(KEPT, O_RDWR | O_TRUNC));
}

static int open_for_neither(void)
{
	return TRIED(open(KEPT, O_ACCMODE | O_TRUNC));
}

static int empty_by_name(void)
{
	return TRIED(truncate(KEPT, 0));
}

static int open_by_own_link(void)
{
	return symlink("../" KEPT, "tmp/link") < 0 ? errno : TRIED(open("tmp/link", O_WRONLY));
}

static int open_by_descriptor(void)
{
	const int fd = open(KEPT, O_RDONLY);
	char path[32];

	(void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return TRIED(open(path, O_RDWR));
}

static int open_by_bare_descriptor(void)
{
	const int fd = open(KEPT, O_PATH);
	char path[32];

	(void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return TRIED(open(path, O_WRONLY));
}

static int open_below_a_folder(void)
{
	const int folder = open("bin", O_RDONLY | O_DIRECTORY);

	return folder < 0 ? errno : TRIED(openat(folder, "busybox", O_WRONLY));
}

static int open_after_chdir(void)
{
	return chdir("bin") < 0 ? errno : TRIED(open("busybox", O_WRONLY));
}

static int open_by_openat2(void)
{
	const struct open_how how = { .flags = O_WRONLY, .resolve = RESOLVE_IN_ROOT };
	const int folder = open("bin", O_PATH);

	return TRIED(syscall(SYS_openat2, folder, "../../busybox", &how, sizeof how));
}

static int open_by_32_bits(void)
{
	return call_32(5, KEPT, O_WRONLY, 0);
}

static int open_ring(int how)
{
	struct io_uring_sqe entry = { .opcode = IORING_OP_OPENAT,
				      .fd = AT_FDCWD,
				      .addr = (uint64_t)(uintptr_t)KEPT,
				      .open_flags = O_WRONLY };

	return ring_try(&entry, how);
}

static int open_by_io_uring(void)
{
	return open_ring(RING_INLINE);
}

static int open_by_a_ring_worker(void)
{
	return open_ring(RING_WORKER);
}

static int open_by_a_polled_ring(void)
{
	return open_ring(RING_POLLED);
}

static int map_shared(void)
{
	const int fd = open(KEPT, O_RDONLY);
	void *at = mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return at == MAP_FAILED ? errno : 0;
}

static int account_into_it(void)
{
	const int r = TRIED(syscall(SYS_acct, KEPT));

	if (!r)
		(void)syscall(SYS_acct, NULL); /* or every process is written there */
	return r;
}

static int write_what_is_read_only(void)
{
	return TRIED(open("etc/passwd", O_WRONLY | O_APPEND));
}

/* ---- names ---- */

static int link_it_elsewhere(void)
{
	return TRIED(link(KEPT, "tmp/second"));
}

static int link_its_descriptor(void)
{
	const int fd = open(KEPT, O_RDONLY);
	char path[32];

	(void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return TRIED(linkat(AT_FDCWD, path, AT_FDCWD, "tmp/second", AT_SYMLINK_FOLLOW));
}

static int link_over_a_new_name(void)
{
	(void)close(open("home/own", O_CREAT | O_WRONLY, 0755));
	return TRIED(link("home/own", "bin/fresh"));
}

static int unlink_it(void)
{
	return TRIED(unlink(KEPT));
}

static int unlink_by_io_uring(void)
{
	struct io_uring_sqe entry = { .opcode = IORING_OP_UNLINKAT,
				      .fd = AT_FDCWD,
				      .addr = (uint64_t)(uintptr_t)KEPT };

	return ring_try(&entry, RING_INLINE);
}

static int rename_it_away(void)
{
	return TRIED(rename(KEPT, "home/away"));
}

static int rename_over_it(void)
{
	(void)close(open("home/own", O_CREAT | O_WRONLY, 0755));
	return TRIED(rename("home/own", KEPT));
}

static int exchange_it(void)
{
	(void)close(open("home/own", O_CREAT | O_WRONLY, 0755));
	return TRIED(renameat2(AT_FDCWD, "home/own", AT_FDCWD, KEPT, RENAME_EXCHANGE));
}

static int rename_by_io_uring(void)
{
	struct io_uring_sqe entry = { .opcode = IORING_OP_RENAMEAT,
				      .fd = AT_FDCWD,
				      .addr = (uint64_t)(uintptr_t)KEPT,
				      .len = (uint32_t)AT_FDCWD,
				      .addr2 = (uint64_t)(uintptr_t) "home/away" };

	return ring_try(&entry, RING_INLINE);
}

static int rename_its_folder(void)
{
	return TRIED(rename("bin", "home/bin"));
}

/* The folder above one that is hidden: with it, all below would have another path. */
static int rename_an_ancestor(void)
{
	return TRIED(rename("usr", "home/usr"));
}

static int exchange_an_ancestor(void)
{
	(void)mkdir("home/usr", 0755);
	return TRIED(renameat2(AT_FDCWD, "home/usr", AT_FDCWD, "usr", RENAME_EXCHANGE));
}

static int create_beside_it(void)
{
	return TRIED(open("bin/fresh", O_CREAT | O_WRONLY, 0755));
}

static int create_by_reading(void)
{
	return TRIED(open("bin/fresh", O_CREAT | O_RDONLY, 0755));
}

static int create_without_a_name(void)
{
	return TRIED(open("bin", O_TMPFILE | O_WRONLY, 0755));
}

static int make_a_folder(void)
{
	return TRIED(mkdir("bin/folder", 0755));
}

/* Python does it at each import: told apart, since nobody tried anything. */
static int keep_bytecode(void)
{
	return TRIED(mkdir("etc/__pycache__", 0755));
}

static int make_a_link(void)
{
	return TRIED(symlink("/tmp", "bin/folder"));
}

static int make_a_fifo(void)
{
	return TRIED(mknod("bin/fifo", S_IFIFO | 0644, 0));
}

/* ---- attributes ---- */

static int change_its_mode(void)
{
	return TRIED(chmod(KEPT, 0777));
}

static int change_its_mode_by_descriptor(void)
{
	return TRIED(fchmod(open(KEPT, O_RDONLY), 0777));
}

static int change_its_mode_by_32_bits(void)
{
	return call_32(15, KEPT, 0777, 0);
}

static int change_its_owner(void)
{
	return TRIED(chown(KEPT, 7, 7));
}

static int change_its_times(void)
{
	const struct timespec times[2] = { { 1, 0 }, { 1, 0 } };

	return TRIED(utimensat(AT_FDCWD, KEPT, times, 0));
}

static int set_an_attribute(void)
{
	return TRIED(setxattr(KEPT, "user.dsec", "1", 1, 0));
}

static int set_an_attribute_by_descriptor(void)
{
	return TRIED(fsetxattr(open(KEPT, O_RDONLY), "user.dsec", "1", 1, 0));
}

/* ---- what is hidden ---- */

static int read_the_answer(void)
{
	return TRIED(open(ANSWER, O_RDONLY));
}

static int read_the_answer_by_io_uring(void)
{
	struct io_uring_sqe entry = { .opcode = IORING_OP_OPENAT,
				      .fd = AT_FDCWD,
				      .addr = (uint64_t)(uintptr_t)ANSWER };

	return ring_try(&entry, RING_WORKER);
}

static int read_the_answer_by_32_bits(void)
{
	return call_32(5, ANSWER, O_RDONLY, 0);
}

static int read_the_answer_from_its_folder(void)
{
	if (chdir("usr/bin") < 0)
		return errno;
	return TRIED(open("answer", O_RDONLY));
}

static int read_the_answer_from_another_root(void)
{
	if (chroot("usr") < 0)
		return errno;
	return TRIED(open("/bin/answer", O_RDONLY));
}

static int look_at_the_answer(void)
{
	struct stat st;

	return TRIED(stat(ANSWER, &st));
}

static int link_the_answer(void)
{
	return TRIED(link(ANSWER, "tmp/answer"));
}

static int move_the_answer(void)
{
	return TRIED(rename(ANSWER, "tmp/answer"));
}

static int list_what_is_hidden(void)
{
	return TRIED(open("usr/bin", O_RDONLY | O_DIRECTORY));
}

static int run_the_answer(void)
{
	char name[] = "answer", word[] = "exit", *const words[] = { name, word, NULL };

	(void)execv(ANSWER, words);
	return errno;
}

/* A link that leads to the hidden folder and to one of the attacker's own, as fast as it goes. */
static int swap_names_while_it_is_read(void)
{
	enum { TRIES = 3000 };
	int error = ENOENT;
	pid_t pid;

	(void)mkdir("home/bin", 0755);
	(void)close(open("home/bin/answer", O_CREAT | O_WRONLY, 0644));
	if (symlink("../usr/bin", "home/way") < 0 || symlink("bin", "home/own") < 0)
		return errno;
	pid = fork();
	if (pid == 0)
		for (;;)
			(void)renameat2(AT_FDCWD, "home/way", AT_FDCWD, "home/own",
					RENAME_EXCHANGE);
	for (int i = 0; i < TRIES && error; i++) {
		int fd;
		char byte;

		if (i % 16 == 0)
			(void)usleep(50); /* the other one's turn, however few CPUs there are */
		fd = open("home/way/answer", O_RDONLY);

		/* The attacker's own is empty. */
		if (fd >= 0 && read(fd, &byte, 1) == 1)
			error = 0;
		if (fd >= 0)
			(void)close(fd); /* only read */
	}
	(void)kill(pid, 9);
	(void)waitpid(pid, NULL, 0); /* it was killed */
	return error;
}

/* What is deeper than can be looked at is refused, whatever it is. */
static int open_far_below(void)
{
	int folder = open("home", O_RDONLY | O_DIRECTORY);

	for (int i = 0; i < 140 && folder >= 0; i++) {
		const int above = folder;

		if (mkdirat(above, "d", 0755) < 0)
			return errno;
		folder = openat(above, "d", O_RDONLY | O_DIRECTORY);
		(void)close(above); /* only a folder */
	}
	return folder < 0 ? errno : 0;
}

/* ---- what may not be run ---- */

static int copy_of_this(void)
{
	static char bytes[1 << 16];
	const int source = open(getenv("ATTACK_PROGRAM") ?: "/proc/self/exe", O_RDONLY);
	const int copy = open("tmp/copy", O_CREAT | O_WRONLY | O_TRUNC, 0755);
	ssize_t count;

	while ((count = read(source, bytes, sizeof bytes)) > 0)
		if (write(copy, bytes, (size_t)count) != count)
			break;
	(void)close(source); /* only read */
	(void)close(copy);   /* or it could not be run */
	return open("tmp/copy", O_RDONLY);
}

/* What runs after all says so and ends well. */
static int ran(int (*run)(int fd, char *const words[]))
{
	char name[] = "copy", word[] = "exit", *const words[] = { name, word, NULL };
	const int fd = copy_of_this();

	if (fd < 0)
		return errno;
	(void)run(fd, words);
	return errno;
}

static int by_name(int fd, char *const words[])
{
	(void)fd;
	return execv("tmp/copy", words);
}

static int by_descriptor(int fd, char *const words[])
{
	return (int)syscall(SYS_execveat, fd, "", words, NULL, AT_EMPTY_PATH);
}

static int run_it(void)
{
	return ran(by_name);
}

static int run_its_descriptor(void)
{
	return ran(by_descriptor);
}

static int map_it_to_run(void)
{
	const int fd = copy_of_this();
	void *at = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);

	return at == MAP_FAILED ? errno : 0;
}

static int map_it_and_allow_later(void)
{
	const int fd = copy_of_this();
	void *at = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);

	return at == MAP_FAILED ? errno : TRIED(mprotect(at, 4096, PROT_READ | PROT_EXEC));
}

/* Columns: by LSM; by root outside; by walls; in a sandbox without a policy; what is told. */
static const struct attack attacks[] = {
	ATTACK(open_for_writing, EPERM, 0, EROFS, 0, OPEN, BIN, KEPT),
	ATTACK(open_and_empty, EPERM, 0, EROFS, 0, OPEN, BIN, KEPT),
	ATTACK(open_for_neither, EPERM, 0, EROFS, 0, OPEN, BIN, KEPT),
	ATTACK(empty_by_name, EPERM, 0, EROFS, 0, TRUNCATE, BIN, KEPT),
	ATTACK(open_by_own_link, EPERM, 0, EROFS, 0, OPEN, BIN, KEPT),
	ATTACK(open_by_descriptor, EPERM, 0, EROFS, 0, OPEN, BIN, KEPT),
	ATTACK(open_by_bare_descriptor, EPERM, 0, EROFS, 0, OPEN, BIN, KEPT),
	ATTACK(open_below_a_folder, EPERM, 0, EROFS, 0, OPEN, BIN, KEPT),
	ATTACK(open_after_chdir, EPERM, 0, EROFS, 0, OPEN, BIN, KEPT),
	ATTACK(open_by_openat2, EPERM, 0, EROFS, 0, OPEN, BIN, KEPT),
	ATTACK(open_by_32_bits, EPERM, 0, ENOSYS, ENOSYS, OPEN, BIN, KEPT),
	ATTACK(open_by_io_uring, EPERM, 0, ENOSYS, ENOSYS, OPEN, BIN, KEPT),
	ATTACK(open_by_a_ring_worker, EPERM, 0, ENOSYS, ENOSYS, OPEN, BIN, KEPT),
	ATTACK(open_by_a_polled_ring, EPERM, 0, ENOSYS, ENOSYS, OPEN, BIN, KEPT),
	QUIET(map_shared, EACCES, EACCES, EACCES, EACCES),
	ATTACK(account_into_it, EPERM, 0, EPERM, EPERM, OPEN, BIN, KEPT),
	ATTACK(write_what_is_read_only, EPERM, 0, EROFS, 0, OPEN, ETC, "etc/passwd"),
	ATTACK(link_it_elsewhere, EPERM, 0, EXDEV, 0, LINK, BIN, KEPT),
	ATTACK(link_its_descriptor, EPERM, 0, EXDEV, 0, LINK, BIN, KEPT),
	ATTACK(link_over_a_new_name, EPERM, 0, EROFS, 0, LINK, BIN, FRESH),
	ATTACK(unlink_it, EPERM, 0, EROFS, 0, REMOVE, BIN, KEPT),
	ATTACK(unlink_by_io_uring, EPERM, 0, ENOSYS, ENOSYS, REMOVE, BIN, KEPT),
	ATTACK(rename_it_away, EPERM, 0, EXDEV, 0, RENAME, BIN, KEPT),
	ATTACK(rename_over_it, EPERM, 0, EXDEV, 0, RENAME, BIN, KEPT),
	ATTACK(exchange_it, EPERM, 0, EXDEV, 0, RENAME, BIN, KEPT),
	ATTACK(rename_by_io_uring, EPERM, 0, ENOSYS, ENOSYS, RENAME, BIN, KEPT),
	ATTACK(rename_its_folder, EPERM, 0, EBUSY, EXDEV, RENAME, BIN, "bin"),
	ATTACK(rename_an_ancestor, EPERM, 0, EXDEV, EXDEV, RENAME, HIDDEN, "usr"),
	ATTACK(exchange_an_ancestor, EPERM, 0, EXDEV, EXDEV, RENAME, HIDDEN, "usr"),
	ATTACK(create_beside_it, EPERM, 0, EROFS, 0, CREATE, BIN, FRESH),
	ATTACK(create_by_reading, EPERM, 0, EROFS, 0, CREATE, BIN, FRESH),
	ATTACK(create_without_a_name, EPERM, 0, EROFS, 0, OPEN, BIN, NULL),
	ATTACK(make_a_folder, EPERM, 0, EROFS, 0, CREATE, BIN, "bin/folder"),
	ATTACK(keep_bytecode, EPERM, 0, EROFS, 0, BYTECODE, ETC, "etc/__pycache__"),
	ATTACK(make_a_link, EPERM, 0, EROFS, 0, CREATE, BIN, "bin/folder"),
	ATTACK(make_a_fifo, EPERM, 0, EROFS, 0, CREATE, BIN, "bin/fifo"),
	ATTACK(change_its_mode, EPERM, 0, EROFS, 0, METADATA, BIN, KEPT),
	ATTACK(change_its_mode_by_descriptor, EPERM, 0, EROFS, 0, METADATA, BIN, KEPT),
	ATTACK(change_its_mode_by_32_bits, EPERM, 0, ENOSYS, ENOSYS, METADATA, BIN, KEPT),
	ATTACK(change_its_owner, EPERM, 0, EROFS, 0, METADATA, BIN, KEPT),
	ATTACK(change_its_times, EPERM, 0, EROFS, 0, METADATA, BIN, KEPT),
	ATTACK(set_an_attribute, EPERM, 0, EROFS, 0, METADATA, BIN, KEPT),
	ATTACK(set_an_attribute_by_descriptor, EPERM, 0, EROFS, 0, METADATA, BIN, KEPT),
	ATTACK(read_the_answer, ENOENT, 0, ENOENT, 0, OPEN, HIDDEN, ANSWER),
	ATTACK(read_the_answer_by_io_uring, ENOENT, 0, ENOSYS, ENOSYS, OPEN, HIDDEN, ANSWER),
	ATTACK(read_the_answer_by_32_bits, ENOENT, 0, ENOSYS, ENOSYS, OPEN, HIDDEN, ANSWER),
	ATTACK(read_the_answer_from_its_folder, ENOENT, 0, ENOENT, 0, OPEN, HIDDEN, ANSWER),
	ATTACK(read_the_answer_from_another_root, ENOENT, 0, ENOENT, 0, OPEN, HIDDEN, ANSWER),
	ATTACK(look_at_the_answer, ENOENT, 0, ENOENT, 0, STAT, HIDDEN, ANSWER),
	ATTACK(link_the_answer, ENOENT, 0, ENOENT, 0, LINK, HIDDEN, ANSWER),
	ATTACK(move_the_answer, ENOENT, 0, EXDEV, 0, RENAME, HIDDEN, ANSWER),
	ATTACK(list_what_is_hidden, ENOENT, 0, 0, 0, OPEN, HIDDEN, "usr/bin"),
	ATTACK(run_the_answer, ENOENT, 0, ENOENT, 0, OPEN, HIDDEN, ANSWER),
	ATTACK(swap_names_while_it_is_read, ENOENT, 0, ENOENT, 0, OPEN, HIDDEN, ANSWER),
	UNDECIDED(open_far_below, EPERM, 0, 0, 0, CREATE),
	ATTACK(run_it, EACCES, 0, EACCES, 0, EXECUTE, TMP, COPY),
	ATTACK(run_its_descriptor, EACCES, 0, EACCES, 0, EXECUTE, TMP, COPY),
	ATTACK(map_it_to_run, EACCES, 0, EPERM, 0, EXECUTE, TMP, COPY),
	ATTACK(map_it_and_allow_later, EACCES, 0, EACCES, 0, EXECUTE, TMP, COPY),
};

const struct attack_group files_group = { "files", attacks, COUNT(attacks) };
