/* A real XFS on a file, and the attack that swaps what two files on it hold. */
#pragma once

#include <stdbool.h>

#include "tests/hostile/policy/place.h"

struct swapper {
	enum tree_place where;
	int error;	 /* that it gets; 0: the files are swapped */
	bool has_filter; /* of every sandbox */
	const char *who;
};

/* Below the place's folder, and enters it; false: this kernel has no XFS. */
bool xfs_mount(const struct place *place);
void xfs_unmount(const struct place *place);
/* By a process in that cgroup, on two new files, which are looked at afterwards. */
void expect_swap(const struct place *place, const struct swapper *swapper);
