/*
 * Attacks by ioctls that a policy refuses: with any size and direction in the upper half, by the
 * 32-bit entry, on a file and on a pipe. See attack.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bpf/policy.h"
#include "tests/hostile/policy/attack.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Type and number, as the groups of docs/policy.md have them; and with sizes of two ABIs. */
static const uint32_t commands[] = {
	0xc0c0586d, 0xc094586d, 0x8004587d, 0x40285881, 0x80585882, 0x40585883, /* xfs-dangerous */
	0xc028660f, 0x00006611, 0x40086610,					/* ext4-dangerous */
	0xc0045877, 0xc0045878,							/* fs-freeze */
	0xc0185879,								/* fs-trim */
	0x40086602, 0x40046602, 0x401c5820,					/* immutable */
	0x5412,	    0x541c,	0x541d,	    0x5423,				/* tty-injection */
};

/* EPERM: all of them; ENOTTY: none; else ATTACK_MIXED. */
static int all(int fd, int (*try)(int fd, uint32_t command))
{
	unsigned refused = 0;

	for (unsigned i = 0; i < COUNT(commands); i++)
		refused += try(fd, commands[i]) == EPERM;
	if (refused == COUNT(commands))
		return EPERM;
	return refused ? ATTACK_MIXED : ENOTTY;
}

/* No argument: what is not refused fails for that, or for the kind of file. */
static int by_the_usual_entry(int fd, uint32_t command)
{
	return TRIED(syscall(SYS_ioctl, fd, command, 0));
}

static int with_junk_above(int fd, uint32_t command)
{
	return TRIED(syscall(SYS_ioctl, fd, command | 0xabcdef01ull << 32, 0));
}

static int of_another_size(int fd, uint32_t command)
{
	return TRIED(syscall(SYS_ioctl, fd, command ^ 0x00040000u, 0));
}

static int by_32_bits(int fd, uint32_t command)
{
	return call_32_plain(54, fd, (long)command, 0);
}

static int a_pipe(void)
{
	int ends[2];

	return pipe(ends) < 0 ? -1 : ends[0];
}

static int ioctls_on_a_pipe(void)
{
	return all(a_pipe(), by_the_usual_entry);
}

static int ioctls_with_junk_above(void)
{
	return all(a_pipe(), with_junk_above);
}

static int ioctls_of_another_size(void)
{
	return all(a_pipe(), of_another_size);
}

static int ioctls_by_32_bits(void)
{
	return all(a_pipe(), by_32_bits);
}

static const struct attack attacks[] = {
	ATTACK(ioctls_on_a_pipe, EPERM, ENOTTY, EPERM, ATTACK_MIXED, IOCTL, XFS, NULL),
	ATTACK(ioctls_with_junk_above, EPERM, ENOTTY, EPERM, ATTACK_MIXED, IOCTL, XFS, NULL),
	ATTACK(ioctls_of_another_size, EPERM, ENOTTY, EPERM, ATTACK_MIXED, IOCTL, XFS, NULL),
	ATTACK(ioctls_by_32_bits, EPERM, ENOTTY, ENOTTY, ENOTTY, IOCTL, XFS, NULL),
};

const struct attack_group ioctls_group = { "ioctls", attacks, COUNT(attacks) };
