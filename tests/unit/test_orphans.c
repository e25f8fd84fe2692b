/* Tests of orphans.c and parking.c: what the keeper remembers and holds. */
#include "engine/keeper/orphans.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "engine/keeper/parking.h"

static void add(struct orphans *orphans, int32_t pid, int32_t status)
{
	orphans_add(orphans, &(struct orphan){ .pid = pid, .status = status, .time_ns = 1 });
}

Test(orphans, newest_of_a_pid_is_found)
{
	struct orphans orphans;

	cr_assert_eq(orphans_init(&orphans), 0);
	cr_assert_null(orphans_find(&orphans, 0), "an empty record has no pid 0");
	add(&orphans, 10, 1);
	add(&orphans, 11, 2);
	add(&orphans, 10, 3);
	cr_assert_eq(orphans_find(&orphans, 10)->status, 3);
	cr_assert_eq(orphans_find(&orphans, 11)->status, 2);
	cr_assert_null(orphans_find(&orphans, 12));
	orphans_done(&orphans);
}

Test(orphans, newest_65536_are_kept_and_older_ones_forgotten)
{
	struct orphans orphans;
	const int more = 1000;

	cr_assert_eq(orphans_init(&orphans), 0);
	for (int i = 0; i < ORPHANS_MAX + more; i++)
		add(&orphans, i + 1, i);
	cr_assert_null(orphans_find(&orphans, 1));
	cr_assert_null(orphans_find(&orphans, more));
	cr_assert_eq(orphans_find(&orphans, more + 1)->status, more);
	cr_assert_eq(orphans_find(&orphans, ORPHANS_MAX + more)->status, ORPHANS_MAX + more - 1);
	orphans_done(&orphans);
}

static int null_open(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	cr_assert_geq(fd, 0);
	return fd;
}

Test(parking, names_keep_their_order_when_one_goes)
{
	struct parking parking;
	int fds[3];

	cr_assert_eq(parking_init(&parking), 0);
	for (int i = 0; i < 3; i++) {
		fds[i] = null_open();
		cr_assert_eq(parking_put(&parking, (const char *[]){ "a", "b", "c" }[i], fds[i]),
			     0);
	}
	cr_assert_eq(parking_get(&parking, "b"), fds[1]);
	cr_assert_eq(parking_drop(&parking, "a"), 0);
	cr_assert_str_eq(parking_name_at(&parking, 0), "b");
	cr_assert_str_eq(parking_name_at(&parking, 1), "c");
	cr_assert_null(parking_name_at(&parking, 2));
	cr_assert_eq(parking_get(&parking, "c"), fds[2]);
	parking_done(&parking);
}

Test(parking, dropping_closes_and_refusing_does_not)
{
	struct parking parking;
	int fd = null_open(), other = null_open();

	cr_assert_eq(parking_init(&parking), 0);
	cr_assert_eq(parking_put(&parking, "a", fd), 0);
	cr_assert_eq(parking_put(&parking, "a", other), -EEXIST);
	cr_assert_eq(parking_put(&parking, "", other), -EINVAL);
	cr_assert_geq(fcntl(other, F_GETFD), 0);
	cr_assert_eq(parking_drop(&parking, "a"), 0);
	cr_assert_eq(fcntl(fd, F_GETFD), -1);
	cr_assert_eq(parking_drop(&parking, "a"), -ENOENT);
	cr_assert_eq(parking_put(&parking, "b", other), 0);
	parking_done(&parking);
	cr_assert_eq(fcntl(other, F_GETFD), -1, "the end closes what is parked");
}
