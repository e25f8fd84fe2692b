/*
 * The memfd that PID 1 of every sandbox runs from. Made once by the engine, inherited by launcher
 * workers. Must hold: mode 0111, so that inside a sandbox it can be run but not opened, which also
 * makes the process undumpable and untraceable; sealed, so that no writer is left.
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

/* The program of init.c; the build names its file. */
__asm__(".pushsection .rodata\n"
	".balign 16\n"
	"init_image:\n"
	".incbin \"" INIT_PROGRAM "\"\n"
	"init_image_end:\n"
	".popsection");
extern __attribute__((visibility("hidden"))) const char init_image[], init_image_end[];

int init_open(int *ret_memfd)
{
	const size_t bytes = (size_t)(init_image_end - init_image);
	auto_close int fd = memfd_create("init", MFD_CLOEXEC | MFD_EXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	if (write(fd, init_image, bytes) != (ssize_t)bytes)
		return -EIO;
	if (fchmod(fd, 0111) < 0)
		return -errno;
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
		return -errno;
	*ret_memfd = take_fd(&fd);
	return 0;
}
