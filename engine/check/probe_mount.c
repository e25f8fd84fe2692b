/*
 * Probes of the mounts a sandbox is made of: tmpfs, EROFS from a file, idmapped layers, overlay,
 * devpts, proc. Called by check.c, each in a process of its own; every mount here is detached or
 * hangs in a private namespace of that process, so it ends with the probe.
 */
#include "engine/check/check.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/check/child.h"
#include "engine/check/erofs_image.h"
#include "engine/check/userns.h"

/* Options of a file system: pairs of key and value, ended by a NULL key; a NULL value: a flag. */
static int context_open(const char *type, const char *const options[])
{
	auto_close int fd = fsopen(type, FSOPEN_CLOEXEC);

	if (fd < 0)
		return -errno;
	for (size_t i = 0; options && options[i]; i += 2) {
		unsigned int command = options[i + 1] ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG;

		if (fsconfig(fd, command, options[i], options[i + 1], 0) < 0)
			return -errno;
	}
	return take_fd(&fd);
}

/* The detached mount of a context. */
static int context_mount(int context_fd)
{
	int fd;

	if (fsconfig(context_fd, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -errno;
	fd = fsmount(context_fd, FSMOUNT_CLOEXEC, 0);
	return fd < 0 ? -errno : fd;
}

static int mount_make(const char *type, const char *const options[])
{
	auto_close int fd = context_open(type, options);

	return fd < 0 ? fd : context_mount(fd);
}

static void result_mount(struct check_result *result, const char *what, int r)
{
	check_missing(result, "%s: %s", what, strerrordesc_np(-r));
}

static void tmpfs_probe(const struct check_context *context, struct check_result *result)
{
	static const char *const options[] = { "size", "64k", "nr_inodes", "8", NULL };
	auto_close int fd = mount_make("tmpfs", options);
	auto_close int file = -1;
	struct statfs info;

	(void)context;
	if (fd < 0) {
		result_mount(result, "tmpfs with a size", fd);
		return;
	}
	file = openat(fd, "file", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (file < 0 || fstatfs(fd, &info) < 0)
		check_failed(result, "a file on tmpfs");
	else if (info.f_files != 8 || !posix_fallocate(file, 0, 1 << 20))
		check_missing(result, "a tmpfs does not keep its size");
	else
		check_ok(result, "bytes and inodes are bounded");
}

/*
 * A file on a ramfs, so that the probe does not depend on what disk this host has: EROFS reads it
 * as it would an image.
 */
static int erofs_mount(const char **ret_step)
{
	uint8_t image[EROFS_IMAGE_BYTES];
	auto_close int ram = mount_make("ramfs", NULL);
	auto_close int file = -1;
	char source[32];
	const char *const options[] = { "source", source, "ro", NULL, NULL };

	*ret_step = "ramfs";
	if (ram < 0)
		return ram;
	file = openat(ram, "image", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (file < 0)
		return -errno;
	erofs_image_compose(image);
	if (write(file, image, sizeof(image)) != sizeof(image))
		return -EIO;
	*ret_step = "EROFS from a file";
	snprintf(source, sizeof(source), "/proc/self/fd/%d", file);
	return mount_make("erofs", options);
}

static void erofs_probe(const struct check_context *context, struct check_result *result)
{
	const char *step;
	auto_close int fd = erofs_mount(&step);
	auto_close int file = -1;
	char text[8] = "";

	(void)context;
	if (fd < 0) {
		result_mount(result, step, fd);
		return;
	}
	file = openat(fd, "ok", O_RDONLY | O_CLOEXEC);
	if (file < 0 || read(file, text, sizeof(text) - 1) < 0)
		check_failed(result, "reading a file of EROFS");
	else if (strcmp(text, "dsec\n") != 0)
		check_missing(result, "a file of EROFS reads wrong");
	else
		check_ok(result, "mounted from a file, without a loop device");
}

/*
 * A place for mounts that must hang somewhere: Linux 6.12 neither copies one that hangs nowhere nor
 * takes a layer from it. Private before anything is mounted: nothing reaches the host.
 */
static int place_make(const char **ret_step)
{
	*ret_step = "mount namespace";
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -errno;
	*ret_step = "tmpfs";
	if (mount("dsec-check", "/tmp", "tmpfs", 0, NULL) < 0 || mkdir("/tmp/image", 0700) < 0)
		return -errno;
	return 0;
}

/* An EROFS that hangs at /tmp/image. */
static int image_hang(const char **ret_step)
{
	int r = place_make(ret_step);
	auto_close int fd = r < 0 ? r : erofs_mount(ret_step);

	if (fd < 0)
		return fd;
	*ret_step = "move_mount of EROFS";
	if (move_mount(fd, "", AT_FDCWD, "/tmp/image", MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return -errno;
	return 0;
}

static void idmap_probe(const struct check_context *context, struct check_result *result)
{
	const char *step;
	auto_close int layer = -1;
	struct mount_attr attributes = { .attr_set = MOUNT_ATTR_IDMAP };
	struct userns ns;
	struct stat info;
	int r = image_hang(&step);

	(void)context;
	if (r == 0)
		r = userns_start(&ns, NULL, &step);
	if (r < 0) {
		result_mount(result, step, r);
		return;
	}
	attributes.userns_fd = (uint64_t)ns.fd;
	layer = open_tree(AT_FDCWD, "/tmp/image", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (layer < 0)
		check_failed(result, "open_tree");
	else if (mount_setattr(layer, "", AT_EMPTY_PATH, &attributes, sizeof(attributes)) < 0)
		check_failed(result, "MOUNT_ATTR_IDMAP of EROFS");
	else if (fstatat(layer, "ok", &info, 0) < 0)
		check_failed(result, "a file of an idmapped EROFS");
	else if (info.st_uid != PROBE_UID)
		check_missing(result, "an idmapped file belongs to %u", info.st_uid);
	else
		check_ok(result, "an EROFS layer belongs to a range's root");
	userns_done(&ns);
}

/* Layers by name, as launchers give them. */
static int overlay_mount(const char **ret_step)
{
	static const char *const options[] = { "lowerdir+", "/tmp/image", "upperdir", "/tmp/upper",
					       "workdir",   "/tmp/work",  NULL };
	int r = image_hang(ret_step);

	if (r < 0)
		return r;
	*ret_step = "directories on tmpfs";
	if (mkdir("/tmp/upper", 0755) < 0 || mkdir("/tmp/work", 0755) < 0)
		return -errno;
	*ret_step = "overlay over EROFS";
	return mount_make("overlay", options);
}

static void overlay_probe(const struct check_context *context, struct check_result *result)
{
	const char *step;
	auto_close int root = overlay_mount(&step);
	auto_close int file = -1;

	(void)context;
	if (root < 0) {
		result_mount(result, step, root);
		return;
	}
	file = openat(root, "ok", O_WRONLY | O_APPEND | O_CLOEXEC);
	if (file < 0 || write(file, "x", 1) != 1)
		check_failed(result, "writing to a file of the lower layer");
	else if (access("/tmp/upper/ok", F_OK) < 0)
		check_failed(result, "the copy in the upper layer");
	else
		check_ok(result, "EROFS below, tmpfs above");
}

static void devpts_probe(const struct check_context *context, struct check_result *result)
{
	static const char *const options[] = { "newinstance", NULL, "ptmxmode", "0666", NULL };
	auto_close int fd = mount_make("devpts", options);
	auto_close int terminal = -1;
	int number = -1;

	(void)context;
	if (fd < 0) {
		result_mount(result, "devpts", fd);
		return;
	}
	terminal = openat(fd, "ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (terminal < 0 || ioctl(terminal, TIOCGPTN, &number) < 0)
		check_failed(result, "ptmx of a new devpts");
	else if (number != 0)
		check_missing(result, "a new devpts is shared: first terminal is %d", number);
	else
		check_ok(result, "an instance of its own");
}

/* In new pid and mount namespaces: a proc of them shows this process as 1. 0 or an errno. */
static int proc_inside(void)
{
	auto_close int fd = mount_make("proc", NULL);
	char target[16] = "";

	if (fd < 0)
		return -fd;
	if (readlinkat(fd, "self", target, sizeof(target) - 1) < 0)
		return errno;
	return strcmp(target, "1") ? ENOTUNIQ : 0;
}

static void proc_probe(const struct check_context *context, struct check_result *result)
{
	int pid = probe_child_start(CLONE_NEWPID | CLONE_NEWNS, -1);
	int r;

	(void)context;
	if (pid == 0)
		_exit(proc_inside());
	r = pid < 0 ? pid : probe_child_end(pid);
	if (r == 0)
		check_ok(result, "mounted for a new pid namespace");
	else
		result_mount(result, "proc", r < 0 ? r : -r);
}

static void fuse_probe(const struct check_context *context, struct check_result *result)
{
	auto_close int device = open("/dev/fuse", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	auto_close int mount = -1;
	char number[16];
	const char *const options[] = { "fd", number,	  "rootmode", "40555", "user_id",
					"0",  "group_id", "0",	      NULL };

	(void)context;
	if (device < 0) {
		result_mount(result, "/dev/fuse", -errno);
		return;
	}
	(void)snprintf(number, sizeof number, "%d", device);
	mount = mount_make("fuse", options);
	if (mount < 0)
		result_mount(result, "fuse", mount);
	else
		check_ok(result, "mounted");
}

const struct check_probe check_mount_probes[] = {
	{ "tmpfs", true, 0, tmpfs_probe, "sandboxes have nothing to write to",
	  "use a kernel with CONFIG_TMPFS" },
	{ "erofs-file", true, 0, erofs_probe, "no image can be mounted",
	  "use Linux 6.12 with CONFIG_EROFS_FS and EROFS_FS_BACKED_BY_FILE; modprobe erofs" },
	{ "fuse", false, 0, fuse_probe,
	  "with --remote no image can be used whose contents are elsewhere",
	  "modprobe fuse, or use a kernel with CONFIG_FUSE_FS" },
	{ "idmapped-erofs", true, 0, idmap_probe, "files of images belong to no one in sandboxes",
	  "use Linux 6.12" },
	{ "overlay", true, 0, overlay_probe, "no sandbox has a root",
	  "use a kernel with CONFIG_OVERLAY_FS; modprobe overlay" },
	{ "devpts", true, 0, devpts_probe, "sandboxes have no terminals",
	  "use a kernel with CONFIG_UNIX98_PTYS" },
	{ "proc", true, 0, proc_probe, "sandboxes have no /proc",
	  "run on the host, not in a container that masks /proc" },
	{ 0 },
};
