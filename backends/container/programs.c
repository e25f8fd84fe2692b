/*
 * The memfds that our own programs inside sandboxes run from: PID 1 and the file helper. Made once
 * by the engine, inherited by launcher workers. Must hold: mode 0111, so that inside a sandbox they
 * can be run but not opened, which also makes the processes undumpable and untraceable; sealed, so
 * that no writer is left.
 */
#include "backends/container/vault.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/cleanup.h"

/* Until Linux 6.3 headers are the minimum. */
#ifndef MFD_EXEC
#define MFD_EXEC 0x10u
#endif

/* The programs of init.c and backends/guest/files; the build names their files. */
__asm__(".pushsection .rodata\n"
	".balign 16\n"
	"init_image:\n"
	".incbin \"" INIT_PROGRAM "\"\n"
	"init_image_end:\n"
	".balign 16\n"
	"helper_image:\n"
	".incbin \"" HELPER_PROGRAM "\"\n"
	"helper_image_end:\n"
	".popsection");
extern __attribute__((visibility("hidden"))) const char init_image[], init_image_end[];
extern __attribute__((visibility("hidden"))) const char helper_image[], helper_image_end[];

static int program_open(const char *name, const char *image, size_t bytes, int *ret_memfd)
{
	auto_close int fd = memfd_create(name, MFD_CLOEXEC | MFD_EXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	if (write(fd, image, bytes) != (ssize_t)bytes)
		return -EIO;
	if (fchmod(fd, 0111) < 0)
		return -errno;
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
		return -errno;
	*ret_memfd = take_fd(&fd);
	return 0;
}

int init_open(int *ret_memfd)
{
	return program_open("init", init_image, (size_t)(init_image_end - init_image), ret_memfd);
}

int helper_open(int *ret_memfd)
{
	return program_open("dsec-file", helper_image, (size_t)(helper_image_end - helper_image),
			    ret_memfd);
}
