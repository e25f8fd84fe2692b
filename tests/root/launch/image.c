/*
 * Makes EROFS images for launcher tests with mkfs.erofs. Called by the harness. The images lie in
 * a temporary folder that is removed at the end.
 */
#include "tests/root/launch/image.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "engine/base/cleanup.h"

static char folder[] = "/tmp/dsec-launch-test.XXXXXX";

static void must(int r, const char *what)
{
	if (r == 0)
		return;
	printf("cannot build the test's image: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void run(const char *format, const char *a, const char *b)
{
	char command[1024];

	(void)snprintf(command, sizeof command, format, a, b);
	must(system(command), command);
}

static void devices_make(void)
{
	static const struct {
		const char *name;
		unsigned minor;
	} devices[] = {
		{ "null", 3 }, { "zero", 5 }, { "full", 7 }, { "random", 8 }, { "urandom", 9 }
	};
	char path[256];

	for (unsigned i = 0; i < sizeof devices / sizeof *devices; i++) {
		(void)snprintf(path, sizeof path, "%s/root/dev/%s", folder, devices[i].name);
		must(mknod(path, S_IFCHR | 0666, makedev(1, devices[i].minor)), path);
		must(chmod(path, 0666), path);
	}
}

static void file_write(const char *name, const char *text)
{
	char path[256];
	FILE *file;

	(void)snprintf(path, sizeof path, "%s/root/%s", folder, name);
	file = fopen(path, "w");
	must(!file || fputs(text, file) < 0 || fclose(file) != 0, path);
}

void image_build(void)
{
	const mode_t mask = umask(022);

	must(!mkdtemp(folder), folder);
	run("mkdir -p %s/root && cd %s/root && mkdir bin dev dev/pts dev/shm etc home home/user "
	    "proc root sys tmp && chmod 1777 tmp dev/shm && chmod 755 . && ln -s pts/ptmx dev/ptmx",
	    folder, folder);
	devices_make();
	run("cp " TINY_PATH " %s/root/bin%s", folder, "");
	run("cp " PROBE_PATH " %s/root/bin/probe && chown 1000:1001 %s/root/home/user", folder,
	    folder);
	file_write("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nbroken line\n"
				 "user:x:1000:1001:A user:/home/user:/bin/sh\n"
				 "high:x:70000:70000::/:/bin/sh\n");
	file_write("etc/secret", "of the image\n");
	run("mkfs.erofs -T0 %s/standard.erofs %s/root >/dev/null", folder, folder);
	run("cd %s/root && rm etc/secret && mkfs.erofs -T0 %s/other.erofs . >/dev/null", folder,
	    folder);
	/* One with what policies speak of, and links to it. */
	run("cd %s/root && mkdir -p usr/bin usr/lib var/log/grader opt/tests && "
	    "cp bin/probe usr/bin/tool && cp bin/probe usr/bin/python3.11 && "
	    "ln -s python3.11 usr/bin/python3 && ln -s python3 usr/bin/python && "
	    "ln -s usr/bin sbin && ln -s ../../../usr/lib lib && ln -s loop loop && "
	    "ln -s ../../../../etc/passwd usr/lib/out && ln usr/bin/tool usr/lib/twin && "
	    "echo 42 > var/log/grader/answer && echo 43 > opt/answer && echo 1 > opt/tests/test && "
	    "mkfs.erofs -T0 %s/walls.erofs . >/dev/null && "
	    "rm -rf usr var opt sbin lib loop",
	    folder, folder);
	/* An image whose dev/pts and proc lead elsewhere. */
	run("cd %s/root && rmdir dev/pts && ln -s /etc dev/pts && mkfs.erofs -T0 %s/link.erofs . "
	    ">/dev/null",
	    folder, folder);
	run("cd %s/root && rm dev/pts && mkdir dev/pts && rmdir proc && ln -s etc proc && "
	    "mkfs.erofs -T0 %s/proclink.erofs . >/dev/null",
	    folder, folder);
	/* One of a bare directory, and one whose dev leads elsewhere. */
	run("cd %s/root && rm -rf dev proc tmp etc home root sys && mkfs.erofs -T0 %s/bare.erofs . "
	    ">/dev/null",
	    folder, folder);
	run("cd %s/root && mkdir etc && ln -s etc dev && mkfs.erofs -T0 %s/devlink.erofs . "
	    ">/dev/null",
	    folder, folder);
	(void)umask(mask);
}

void image_remove(void)
{
	run("rm -rf %s%s", folder, "");
}

int image_mount(const char *variant)
{
	char path[256];
	auto_close int fs = (int)syscall(SYS_fsopen, "erofs", FSOPEN_CLOEXEC);
	int mount_fd;

	(void)snprintf(path, sizeof path, "%s/%s.erofs", folder, variant ? variant : "standard");
	if (fs < 0 || syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "source", path, 0) < 0 ||
	    syscall(SYS_fsconfig, fs, FSCONFIG_SET_FLAG, "ro", NULL, 0) < 0 ||
	    syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -errno;
	mount_fd = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_RDONLY);
	return mount_fd < 0 ? -errno : mount_fd;
}
