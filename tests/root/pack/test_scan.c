/*
 * What becomes of an upper directory, made by hand as overlayfs and a hostile guest would leave it:
 * the tree, the raw contents, what is counted and what is refused.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "backends/store/canary.h"
#include "backends/store/residue.h"
#include "backends/store/scan.h"

enum { BASE = 1 << 20 };

/* An upper directory on a tmpfs of its own, which goes with the test's mount namespace. */
struct upper {
	int fd, raw_fd;
	struct scan scan;
	struct scanned told;
	struct tree *tree;
};

static void upper_open(struct upper *u)
{
	char path[] = "/tmp/dsec-scan-XXXXXX";

	cr_assert_eq(unshare(CLONE_NEWNS), 0);
	cr_assert_eq(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	cr_assert(mkdtemp(path));
	cr_assert_eq(mount("none", path, "tmpfs", 0, "size=64m"), 0);
	u->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cr_assert_geq(u->fd, 0);
	cr_assert_eq(umount2(path, MNT_DETACH), 0);
	cr_assert_eq(rmdir(path), 0);
	cr_assert_eq(fchown(u->fd, BASE, BASE), 0);
	u->raw_fd = memfd_create("raw", MFD_CLOEXEC);
	cr_assert_geq(u->raw_fd, 0);
	u->scan = (struct scan){ .upper_fd = u->fd,
				 .raw_fd = u->raw_fd,
				 .id_base = BASE,
				 .bytes_max = 1 << 30,
				 .files_max = 10000 };
	u->tree = NULL;
}

static void upper_close(struct upper *u)
{
	tree_free(u->tree);
	residue_free(u->scan.residue);
	canary_list_free((struct canary_list *)u->scan.canaries);
	close(u->raw_fd);
	close(u->fd);
}

static int scan_run(struct upper *u)
{
	tree_free(u->tree);
	u->tree = NULL;
	cr_assert_eq(ftruncate(u->raw_fd, 0), 0);
	return scan_upper(&u->scan, &u->tree, &u->told);
}

static void wipe(struct upper *u, const char *word)
{
	size_t wrong;

	cr_assert_eq(residue_new(&word, 1, &u->scan.residue, &wrong), 0);
}

static void look_for(struct upper *u, const char *canary)
{
	struct canary_list *list;

	cr_assert_eq(canary_list_new(&list), 0);
	cr_assert_eq(canary_add(list, canary, strlen(canary)), 0);
	cr_assert_eq(canary_ready(list), 0);
	u->scan.canaries = list;
}

/* ---- making ---- */

static void own(const struct upper *u, const char *path)
{
	cr_assert_eq(fchownat(u->fd, path, BASE + 7, BASE + 8, AT_SYMLINK_NOFOLLOW), 0);
}

static void put_directory(const struct upper *u, const char *path)
{
	cr_assert_eq(mkdirat(u->fd, path, 0750), 0, "%s", path);
	own(u, path);
}

static int put_file(const struct upper *u, const char *path, const void *bytes, size_t count)
{
	int fd = openat(u->fd, path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0640);

	cr_assert_geq(fd, 0, "%s", path);
	cr_assert_eq(write(fd, bytes, count), (ssize_t)count);
	own(u, path);
	return fd;
}

static void put(const struct upper *u, const char *path, const char *text)
{
	close(put_file(u, path, text, strlen(text)));
}

static void put_node(const struct upper *u, const char *path, mode_t mode, dev_t dev)
{
	cr_assert_eq(mknodat(u->fd, path, mode, dev), 0, "%s", path);
	own(u, path);
}

static void put_mark(const struct upper *u, const char *path, const char *name, const char *value)
{
	int fd = openat(u->fd, path, O_RDONLY | O_CLOEXEC);

	cr_assert_geq(fd, 0, "%s", path);
	cr_assert_eq(fsetxattr(fd, name, value, strlen(value), 0), 0, "%s %s", path, name);
	close(fd);
}

/* ---- looking ---- */

static uint32_t find(const struct upper *u, const char *path)
{
	uint32_t node = 0;

	while (*path && node != TREE_NONE) {
		size_t bytes = strcspn(path, "/");

		node = tree_find(u->tree, node, path, bytes);
		path += bytes + (path[bytes] == '/');
	}
	return node;
}

static const struct tree_node *get(const struct upper *u, const char *path)
{
	uint32_t node = find(u, path);

	cr_assert_neq(node, TREE_NONE, "%s", path);
	return &u->tree->nodes[tree_inode(u->tree, node)];
}

static bool has(const struct upper *u, const char *path)
{
	return find(u, path) != TREE_NONE;
}

static void expect_text(const struct upper *u, const char *path, const char *text)
{
	const struct tree_node *node = get(u, path);
	const struct tree_extent *extent = &u->tree->extents[node->extent];
	char bytes[TREE_BLOCK_BYTES];

	cr_assert_eq(node->size, strlen(text), "%s", path);
	cr_assert_eq(node->extents, 1);
	cr_assert_eq(pread(u->raw_fd, bytes, sizeof bytes, (off_t)extent->block * TREE_BLOCK_BYTES),
		     sizeof bytes);
	cr_expect_eq(memcmp(bytes, text, strlen(text)), 0, "%s", path);
}

static bool raw_has(const struct upper *u, const char *text)
{
	off_t bytes = lseek(u->raw_fd, 0, SEEK_END);
	char *raw = malloc((size_t)bytes + 1);
	bool found;

	cr_assert(raw);
	cr_assert_eq(pread(u->raw_fd, raw, (size_t)bytes, 0), bytes);
	found = memmem(raw, (size_t)bytes, text, strlen(text));
	free(raw);
	return found;
}

/* ---- what stays ---- */

Test(scan, files_folders_links_and_fifos_come_as_they_are)
{
	struct upper u;

	upper_open(&u);
	put_directory(&u, "d");
	put(&u, "d/one", "contents of one");
	cr_assert_eq(fchmodat(u.fd, "d/one", 06755, 0), 0);
	cr_assert_eq(linkat(u.fd, "d/one", u.fd, "two", 0), 0);
	cr_assert_eq(symlinkat("d/one", u.fd, "link"), 0);
	own(&u, "link");
	put_node(&u, "fifo", S_IFIFO | 0600, 0);
	put(&u, "empty", "");
	cr_assert_eq(scan_run(&u), 0, "%s: %s", u.told.path, u.told.reason);
	expect_text(&u, "d/one", "contents of one");
	cr_expect_eq(get(&u, "d/one")->mode, 06755);
	cr_expect_eq(get(&u, "d/one")->uid, 7);
	cr_expect_eq(get(&u, "d/one")->gid, 8);
	cr_expect_eq(get(&u, "d/one"), get(&u, "two"));
	cr_expect_eq(get(&u, "two")->names, 2);
	cr_expect_eq(get(&u, "d")->type, TREE_DIRECTORY);
	cr_expect_eq(get(&u, "d")->mode, 0750);
	cr_expect_eq(get(&u, "fifo")->type, TREE_FIFO);
	cr_expect_eq(get(&u, "empty")->size, 0);
	cr_expect_eq(get(&u, "empty")->extents, 0);
	cr_expect_str_eq(u.tree->text + get(&u, "link")->target, "d/one");
	cr_expect_eq(u.tree->nodes[0].uid, 0);
	cr_expect_eq(u.told.bytes, strlen("contents of one"));
	upper_close(&u);
}

Test(scan, holes_stay_holes)
{
	struct upper u;
	const struct tree_node *node;
	const struct tree_extent *extent;
	int fd;

	upper_open(&u);
	fd = put_file(&u, "sparse", "begin", 5);
	cr_assert_eq(pwrite(fd, "end", 3, (off_t)100 << 20), 3);
	cr_assert_eq(ftruncate(fd, (off_t)200 << 20), 0);
	close(fd);
	cr_assert_eq(scan_run(&u), 0, "%s", u.told.reason);
	node = get(&u, "sparse");
	cr_expect_eq(node->size, 200 << 20);
	cr_assert_eq(node->extents, 2);
	extent = &u.tree->extents[node->extent];
	cr_expect_eq(extent[0].file_block, 0);
	cr_expect_eq(extent[0].blocks, 1);
	cr_expect_eq(extent[1].file_block, 25600);
	cr_expect_eq(extent[1].blocks, 1);
	cr_expect_eq(lseek(u.raw_fd, 0, SEEK_END), 8192);
	upper_close(&u);
}

Test(scan, marks_of_overlayfs_become_what_they_mean)
{
	struct upper u;

	upper_open(&u);
	put_node(&u, "gone", S_IFCHR, makedev(0, 0));
	put_directory(&u, "opaque");
	put_mark(&u, "opaque", "trusted.overlay.opaque", "y");
	put_directory(&u, "some");
	put_mark(&u, "some", "trusted.overlay.opaque", "x");
	put(&u, "some/gone", "");
	put_mark(&u, "some/gone", "trusted.overlay.whiteout", "y");
	put(&u, "some/stays", "");
	put(&u, "plain", "");
	put_mark(&u, "plain", "trusted.overlay.whiteout", "y");
	put_mark(&u, "plain", "trusted.overlay.origin", "whatever");
	cr_assert_eq(scan_run(&u), 0, "%s", u.told.reason);
	cr_expect_eq(get(&u, "gone")->type, TREE_WHITEOUT);
	cr_expect_eq(get(&u, "some/gone")->type, TREE_WHITEOUT);
	cr_expect_eq(get(&u, "some/stays")->type, TREE_FILE);
	cr_expect_eq(get(&u, "plain")->type, TREE_FILE);
	cr_expect_eq(get(&u, "opaque")->flags, TREE_OPAQUE);
	cr_expect_eq(get(&u, "some")->flags, 0);
	cr_expect_eq(get(&u, "plain")->xattrs, TREE_NONE);
	cr_expect_eq(u.told.whiteouts, 2);
	upper_close(&u);
}

Test(scan, file_capabilities_are_those_of_the_images_root)
{
	static const uint8_t wanted[20] = { 1, 0, 0, 2, 0, 4 };
	uint8_t value[24] = { 1, 0, 0, 3, 0, 4 };
	const uint32_t root = BASE;
	struct upper u;
	const struct tree_xattr *xattr;
	int fd;

	upper_open(&u);
	memcpy(value + 20, &root, sizeof root);
	fd = put_file(&u, "ping", "", 0);
	cr_assert_eq(fsetxattr(fd, "security.capability", value, sizeof value, 0), 0);
	cr_assert_eq(fsetxattr(fd, "user.kept", "yes", 3, 0), 0);
	close(fd);
	cr_assert_eq(scan_run(&u), 0, "%s", u.told.reason);
	tree_sort(u.tree);
	xattr = &u.tree->xattrs[get(&u, "ping")->xattrs];
	cr_expect_str_eq(u.tree->text + xattr->name, "security.capability");
	cr_assert_eq(xattr->value_bytes, sizeof wanted);
	cr_expect_eq(memcmp(u.tree->text + xattr->value, wanted, sizeof wanted), 0);
	cr_expect_str_eq(u.tree->text + u.tree->xattrs[xattr->next].name, "user.kept");
	upper_close(&u);
}

/* ---- what does not ---- */

Test(scan, smuggled_whiteouts_and_what_is_the_engines_are_left_out_and_counted)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct upper u;
	char cwd[64];
	int fd;

	upper_open(&u);
	put(&u, ".wh.passwd", "");
	put_directory(&u, ".wh..wh..opq");
	put(&u, ".wh..wh..opq/x", "");
	put_directory(&u, "dev");
	put(&u, "dev/planted", "in dev");
	put_directory(&u, "etc");
	put(&u, "etc/resolv.conf", "nameserver");
	put(&u, "etc/hosts", "hosts");
	put_directory(&u, "proc");
	put_node(&u, "disk", S_IFBLK | 0600, makedev(8, 0));
	put_node(&u, "null", S_IFCHR | 0666, makedev(1, 3));
	(void)snprintf(cwd, sizeof cwd, "/proc/self/fd/%d/socket", u.fd);
	memcpy(address.sun_path, cwd, strlen(cwd));
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cr_assert_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
	close(fd);
	put_mark(&u, "etc/hosts", "user.overlay.redirect", "/etc/shadow");
	put_mark(&u, "etc/hosts", "trusted.other", "x");
	cr_assert_eq(scan_run(&u), 0, "%s", u.told.reason);
	cr_expect_not(has(&u, ".wh.passwd"));
	cr_expect_not(has(&u, ".wh..wh..opq"));
	cr_expect_not(has(&u, "dev"));
	cr_expect_not(has(&u, "proc"));
	cr_expect_not(has(&u, "etc/resolv.conf"));
	cr_expect_not(has(&u, "disk"));
	cr_expect_not(has(&u, "null"));
	cr_expect_not(has(&u, "socket"));
	cr_expect(has(&u, "etc/hosts"));
	cr_expect_eq(get(&u, "etc/hosts")->xattrs, TREE_NONE);
	cr_expect_eq(u.told.dropped[SCAN_DROP_WHITEOUT], 2);
	cr_expect_eq(u.told.dropped[SCAN_DROP_ENGINE], 3);
	cr_expect_eq(u.told.dropped[SCAN_DROP_DEVICE], 2);
	cr_expect_eq(u.told.dropped[SCAN_DROP_SOCKET], 1);
	cr_expect_eq(u.told.dropped[SCAN_DROP_XATTR], 2);
	cr_expect_not(raw_has(&u, "in dev"));
	upper_close(&u);
}

Test(scan, residue_is_in_neither_tree_nor_contents)
{
	static const char core[128] = "\177ELF\2\1\1\0\0\0\0\0\0\0\0\0\4\0secret of cores";
	struct upper u;

	upper_open(&u);
	put_directory(&u, "root");
	put(&u, "root/.bash_history", "secret of history");
	put_directory(&u, "root/.cache");
	put(&u, "root/.cache/wheel", "secret of caches");
	put_directory(&u, "w");
	close(put_file(&u, "w/core", core, sizeof core));
	put_directory(&u, "w/core.d");
	put(&u, "w/core.py", "kept: no core file");
	put(&u, "w/deleted", "secret that was deleted");
	cr_assert_eq(unlinkat(u.fd, "w/deleted", 0), 0);
	/* What the image had and the sandbox deleted stays deleted. */
	put_node(&u, "root/.netrc", S_IFCHR, makedev(0, 0));
	wipe(&u, "all");
	cr_assert_eq(scan_run(&u), 0, "%s", u.told.reason);
	cr_expect_not(has(&u, "root/.bash_history"));
	cr_expect_not(has(&u, "root/.cache"));
	cr_expect_not(has(&u, "w/core"));
	cr_expect_eq(get(&u, "root/.netrc")->type, TREE_WHITEOUT);
	expect_text(&u, "w/core.py", "kept: no core file");
	cr_expect(has(&u, "w/core.d"));
	cr_expect_not(raw_has(&u, "secret"));
	cr_expect_eq(u.told.wiped, 3);
	upper_close(&u);
}

/* ---- what is refused ---- */

static void expect_refused(struct upper *u, int error, const char *path, const char *reason)
{
	cr_expect_eq(scan_run(u), error, "%s", reason);
	cr_expect_null(u->tree);
	cr_expect_str_eq(u->told.path, path);
	cr_expect(strstr(u->told.reason, reason), "%s", u->told.reason);
}

Test(scan, what_no_layer_can_hold_is_refused_with_its_path)
{
	struct upper u;

	upper_open(&u);
	put_directory(&u, "d");
	put_mark(&u, "d", "trusted.overlay.redirect", "/else");
	expect_refused(&u, -EBADMSG, "/d", "overlayfs");
	cr_assert_eq(unlinkat(u.fd, "d", AT_REMOVEDIR), 0);
	put(&u, "f", "");
	put_mark(&u, "f", "trusted.overlay.metacopy", "");
	expect_refused(&u, -EBADMSG, "/f", "overlayfs");
	cr_assert_eq(unlinkat(u.fd, "f", 0), 0);
	put(&u, "owner", "");
	cr_assert_eq(fchownat(u.fd, "owner", 0, BASE, 0), 0);
	expect_refused(&u, -EBADMSG, "/owner", "owner");
	cr_assert_eq(fchownat(u.fd, "owner", BASE, BASE + SCAN_IDS, 0), 0);
	expect_refused(&u, -EBADMSG, "/owner", "owner");
	upper_close(&u);
}

Test(scan, what_is_over_a_limit_is_refused)
{
	struct upper u;
	int fd, at, deeper;

	upper_open(&u);
	fd = put_file(&u, "large", "", 0);
	cr_assert_eq(ftruncate(fd, 1ll << 50), 0);
	expect_refused(&u, -EFBIG, "/large", "larger than a file");
	cr_assert_eq(ftruncate(fd, 2ll << 30), 0);
	expect_refused(&u, -EFBIG, "/large", "over the limit of bytes");
	close(fd);
	u.scan.files_max = 0;
	expect_refused(&u, -E2BIG, "/", "over the limit of files");
	u.scan.files_max = 10000;
	cr_assert_eq(unlinkat(u.fd, "large", 0), 0);
	at = dup(u.fd);
	for (int i = 0; i < 200; i++) {
		cr_assert_eq(mkdirat(at, "deep", 0755), 0);
		cr_assert_eq(fchownat(at, "deep", BASE, BASE, 0), 0);
		deeper = openat(at, "deep", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		cr_assert_geq(deeper, 0);
		close(at);
		at = deeper;
	}
	close(at);
	cr_expect_eq(scan_run(&u), -EBADMSG);
	cr_expect(strstr(u.told.reason, "deeper"), "%s", u.told.reason);
	upper_close(&u);
}

Test(scan, a_canary_is_refused_wherever_it_is_and_never_told)
{
	static const char canary[] = "canary-0123456789";
	struct upper u;
	int fd;

	upper_open(&u);
	look_for(&u, canary);
	put_directory(&u, "d");
	put(&u, "d/clean", "canary-012345678");
	cr_assert_eq(scan_run(&u), 0);
	fd = put_file(&u, "d/file", "", 0);
	cr_assert_eq(pwrite(fd, canary, strlen(canary), (256 << 10) - 5), (ssize_t)strlen(canary));
	close(fd);
	expect_refused(&u, -EKEYREJECTED, "/d/file",
		       "canary 1 is in its contents, as it is, at byte");
	cr_expect(strstr(u.told.reason, "262139"), "%s", u.told.reason);
	cr_assert_eq(unlinkat(u.fd, "d/file", 0), 0);
	put(&u, "d/x-canary-0123456789", "");
	expect_refused(&u, -EKEYREJECTED, "/d", "a path in it");
	cr_assert_eq(unlinkat(u.fd, "d/x-canary-0123456789", 0), 0);
	cr_assert_eq(symlinkat("/canary-0123456789", u.fd, "d/link"), 0);
	own(&u, "d/link");
	expect_refused(&u, -EKEYREJECTED, "/d/link", "the target of a link");
	cr_assert_eq(unlinkat(u.fd, "d/link", 0), 0);
	put_mark(&u, "d/clean", "user.note", "63616e6172792d30313233343536373839");
	expect_refused(&u, -EKEYREJECTED, "/d/clean", "hex");
	cr_expect_null(strstr(u.told.reason, canary));
	upper_close(&u);
}

Test(scan, the_same_directory_gives_the_same_tree_and_contents)
{
	struct upper u;
	char name[16], *raw[2];
	off_t bytes[2];

	upper_open(&u);
	for (int i = 0; i < 200; i++) {
		(void)snprintf(name, sizeof name, "f%d", i * 7919 % 200);
		put(&u, name, name);
	}
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(scan_run(&u), 0);
		bytes[i] = lseek(u.raw_fd, 0, SEEK_END);
		raw[i] = malloc((size_t)bytes[i]);
		cr_assert_eq(pread(u.raw_fd, raw[i], (size_t)bytes[i], 0), bytes[i]);
	}
	cr_assert_eq(bytes[0], bytes[1]);
	cr_expect_eq(memcmp(raw[0], raw[1], (size_t)bytes[0]), 0);
	free(raw[0]);
	free(raw[1]);
	upper_close(&u);
}
