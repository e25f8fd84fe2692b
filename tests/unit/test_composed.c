/* The cache of compositions keeps its limits. */
#include "engine/image/composition.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COUNT = 9, BYTES = 1000 };

static void name_of(unsigned number, char ret[80])
{
	(void)snprintf(ret, 80, "%064u.erofs", number);
}

/* Number 0 is the oldest. */
static int folder_make(char *path)
{
	int folder;

	cr_assert_not_null(mkdtemp(path));
	folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (unsigned i = 0; i < COUNT; i++) {
		struct timespec times[2] = { { 1000 + (time_t)i, 0 }, { 1000 + (time_t)i, 0 } };
		char name[80];
		int fd;

		name_of(i, name);
		fd = openat(folder, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
		cr_assert_eq(ftruncate(fd, BYTES), 0);
		cr_assert_eq(futimens(fd, times), 0);
		(void)close(fd); /* its size is what counts */
	}
	return folder;
}

static void folder_end(const char *path, int folder)
{
	for (unsigned i = 0; i < COUNT; i++) {
		char name[80];

		name_of(i, name);
		(void)unlinkat(folder, name, 0); /* some have gone */
	}
	(void)close(folder); /* was only looked at */
	cr_assert_eq(rmdir(path), 0);
}

static bool is_there(int folder, unsigned number)
{
	char name[80];

	name_of(number, name);
	return faccessat(folder, name, F_OK, 0) == 0;
}

/* Number 1 is in use. */
static bool keeps_one(const void *owner, const char *key)
{
	(void)owner;
	return key[63] == '1';
}

Test(composed, the_oldest_that_nobody_uses_go_until_few_are_left)
{
	char path[] = "/tmp/dsec-composed.XXXXXX";
	const struct composed_limits limits = { .count_max = 3, .bytes_max = UINT64_MAX };
	int folder = folder_make(path);

	cr_assert_eq(composed_trim(folder, &limits, keeps_one, NULL), 6);
	for (unsigned i = 0; i < COUNT; i++)
		cr_assert_eq(is_there(folder, i), i == 1 || i >= 7, "%u", i);
	cr_assert_eq(composed_trim(folder, &limits, keeps_one, NULL), 0);
	folder_end(path, folder);
}

Test(composed, the_oldest_that_nobody_uses_go_until_they_are_small)
{
	char path[] = "/tmp/dsec-composed.XXXXXX";
	const struct composed_limits limits = { .count_max = 100, .bytes_max = 4 * BYTES + 1 };
	int folder = folder_make(path);

	cr_assert_eq(composed_trim(folder, &limits, keeps_one, NULL), 5);
	for (unsigned i = 0; i < COUNT; i++)
		cr_assert_eq(is_there(folder, i), i == 1 || i >= 6, "%u", i);
	folder_end(path, folder);
}

Test(composed, what_is_no_composition_stays)
{
	char path[] = "/tmp/dsec-composed.XXXXXX";
	const struct composed_limits limits = { .count_max = 0, .bytes_max = 0 };
	int folder = folder_make(path);

	cr_assert_eq(mkdirat(folder, "other.erofs", 0700), 0);
	cr_assert_eq(composed_trim(folder, &limits, keeps_one, NULL), COUNT - 1);
	cr_assert_eq(unlinkat(folder, "other.erofs", AT_REMOVEDIR), 0);
	folder_end(path, folder);
}

Test(composed, names_are_one_or_several_that_may_be_written)
{
	const char *const right[] = { "a", "a+b", "team/a:1+b-c/d.e", "cache+blobs" };
	const char *const wrong[] = { "",     "+",     "a+",	     "+a",	  "a++b",
				      "a+.b", "a+b/",  "composed/a", "a+cache/b", "blobs/sha256/x",
				      "a b",  "a+../b" };
	char many[IMAGE_NAMES_MAX] = "a", part[IMAGE_NAME_MAX + 8];
	const char *at = "left/part+right";

	for (unsigned i = 0; i < sizeof right / sizeof *right; i++)
		cr_assert_eq(image_names_check(right[i]), 0, "%s", right[i]);
	for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++)
		cr_assert_lt(image_names_check(wrong[i]), 0, "%s", wrong[i]);
	for (unsigned i = 1; i < IMAGE_PARTS_MAX; i++)
		(void)strcat(many, "+a");
	cr_assert_eq(image_names_check(many), 0);
	(void)strcat(many, "+a");
	cr_assert_lt(image_names_check(many), 0);
	cr_assert_eq(image_name_next(&at, part), 9);
	cr_assert_str_eq(part, "left/part");
	cr_assert_eq(image_name_next(&at, part), 5);
	cr_assert_null(at);
	memset(part, 'x', sizeof part - 1);
	part[sizeof part - 1] = 0;
	cr_assert_lt(image_names_check(part), 0);
}
