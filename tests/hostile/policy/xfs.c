/*
 * Owns a real XFS below a place, and the attack on it that swaps what two files hold below
 * everybody's feet (E4). Called by the tests beside it.
 */
#include "tests/hostile/policy/xfs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "backends/container/filter.h"
#include "engine/base/cleanup.h"
#include "tests/hostile/policy/attack.h"

/* Of XFS's own headers; of `stat` the kernel compares the times alone. */
struct swap {
	int64_t version, target, temporary, offset, bytes;
	char unused[16];
	struct {
		char before[56];
		int64_t modified_s;
		int32_t modified_ns, gap;
		int64_t changed_s;
		int32_t changed_ns;
		char after[52];
	} stat;
};

_Static_assert(sizeof(struct swap) == 192, "as in XFS_IOC_SWAPEXT");

#define SWAPEXT _IOWR('X', 109, struct swap)

enum { FILE_BYTES = 8192, DIED = 250 };

/* Made anew, "A" and "B" throughout, and on the disk. */
static int file_of(const char *name, char letter)
{
	const int fd = open(name, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0644);
	char bytes[FILE_BYTES];

	memset(bytes, letter, sizeof bytes);
	return write(fd, bytes, sizeof bytes) == FILE_BYTES && fsync(fd) == 0 ? fd : -1;
}

static int swap_try(const void *with)
{
	auto_close int a = file_of("a", 'A');
	auto_close int b = file_of("b", 'B');
	struct swap swap = { .target = a, .temporary = b, .bytes = FILE_BYTES };
	struct stat st;

	if (a < 0 || b < 0 || fstat(a, &st) < 0)
		return DIED;
	swap.stat.modified_s = st.st_mtim.tv_sec;
	swap.stat.modified_ns = (int32_t)st.st_mtim.tv_nsec;
	swap.stat.changed_s = st.st_ctim.tv_sec;
	swap.stat.changed_ns = (int32_t)st.st_ctim.tv_nsec;
	if (*(const bool *)with && filter_install(0x5ec2e7) < 0)
		return DIED;
	return TRIED(ioctl(a, SWAPEXT, &swap));
}

/* What of both is to be read now. */
static void expect_letters(const char *wanted, const char *who)
{
	char letters[3] = "";
	auto_close int a = open("a", O_RDONLY | O_CLOEXEC);
	auto_close int b = open("b", O_RDONLY | O_CLOEXEC);

	cr_expect(read(a, letters, 1) == 1 && read(b, letters + 1, 1) == 1);
	cr_expect_str_eq(letters, wanted, "%s: %s", who, letters);
}

void expect_swap(const struct place *place, const struct swapper *swapper)
{
	const int error = swapper->error;
	const int r = tree_run(&place->tree, swapper->where, swap_try, &swapper->has_filter);

	cr_expect_eq(r, error, "%s: %s", swapper->who, strerrorname_np(r));
	expect_letters(error ? "AB" : "BA", swapper->who);
}

bool xfs_mount(const struct place *place)
{
	static const char script[] = "truncate -s 320M disk && mkfs.xfs -q disk && mkdir xfs";

	cr_assert_eq(mount("place", place->folder, "tmpfs", 0, NULL), 0);
	cr_assert_eq(chdir(place->folder), 0);
	cr_assert_eq(system(script), 0);
	if (system("mount -o loop disk xfs") != 0)
		return false;
	cr_assert_eq(chdir("xfs"), 0);
	return true;
}

void xfs_unmount(const struct place *place)
{
	(void)!chdir("/");
	(void)umount2(place->folder,
		      MNT_DETACH); /* and all below it; loop devices end by themselves */
}
