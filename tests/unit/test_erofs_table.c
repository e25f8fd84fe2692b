/* The table of devices of an EROFS image, as its maker and as an enemy writes it. */
#include "backends/store/erofs.h"

#include <criterion/criterion.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/base/cleanup.h"

enum { SUPER_AT = 1024, SLOTS_AT = 9, SLOT_BYTES = 128, IMAGE_BYTES = 8192 };

static void put32(uint8_t *image, unsigned at, uint32_t value)
{
	value = htole32(value);
	memcpy(image + at, &value, sizeof value);
}

static void put16(uint8_t *image, unsigned at, uint16_t value)
{
	value = htole16(value);
	memcpy(image + at, &value, sizeof value);
}

/* Two devices: one of 3 blocks and one of 70000. */
static void image_make(uint8_t image[IMAGE_BYTES])
{
	memset(image, 0, IMAGE_BYTES);
	put32(image, SUPER_AT, 0xE0F5E1E2u);
	image[SUPER_AT + 12] = 12;
	put32(image, SUPER_AT + 80, 0xC);
	put16(image, SUPER_AT + 86, 2);
	put16(image, SUPER_AT + 88, SLOTS_AT);
	memset(image + SLOTS_AT * SLOT_BYTES, 'a', 64);
	put32(image, SLOTS_AT * SLOT_BYTES + 64, 3);
	memcpy(image + (SLOTS_AT + 1) * SLOT_BYTES, "short", 5);
	put32(image, (SLOTS_AT + 1) * SLOT_BYTES + 64, 70000);
}

static int image_table(const void *image, size_t bytes, struct erofs_table *ret)
{
	auto_close int fd = memfd_create("image", MFD_CLOEXEC);

	cr_assert_eq(write(fd, image, bytes), (ssize_t)bytes);
	return erofs_table_read(fd, ret);
}

Test(erofs_table, tags_and_sizes_are_as_written)
{
	uint8_t image[IMAGE_BYTES];
	struct erofs_table table;

	image_make(image);
	cr_assert_eq(image_table(image, sizeof image, &table), 0);
	cr_assert_eq(table.count, 2);
	cr_assert_eq(strlen(table.tags[0]), 64);
	cr_assert_eq(table.bytes[0], 3 * 4096);
	cr_assert_str_eq(table.tags[1], "short");
	cr_assert_eq(table.bytes[1], 70000ull * 4096);
	erofs_table_done(&table);
	cr_assert_eq(table.count, 0);
}

Test(erofs_table, wide_sizes_count_only_where_the_image_says_so)
{
	uint8_t image[IMAGE_BYTES];
	struct erofs_table table;

	image_make(image);
	put32(image, SLOTS_AT * SLOT_BYTES + 72, 1);
	cr_assert_eq(image_table(image, sizeof image, &table), 0);
	cr_assert_eq(table.bytes[0], 3 * 4096);
	erofs_table_done(&table);
	put32(image, SUPER_AT + 80, 0x8C);
	cr_assert_eq(image_table(image, sizeof image, &table), 0);
	cr_assert_eq(table.bytes[0], ((1ull << 32) + 3) * 4096);
	erofs_table_done(&table);
	put32(image, SLOTS_AT * SLOT_BYTES + 72, UINT32_MAX);
	cr_assert_eq(image_table(image, sizeof image, &table), -EBADMSG);
}

Test(erofs_table, without_a_table_there_are_none)
{
	uint8_t image[IMAGE_BYTES];
	struct erofs_table table;

	image_make(image);
	put32(image, SUPER_AT + 80, 0x4);
	cr_assert_eq(image_table(image, sizeof image, &table), 0);
	cr_assert_eq(table.count, 0);
	erofs_table_done(&table);
}

Test(erofs_table, what_cannot_be_is_refused)
{
	static const struct {
		unsigned at, value;
		int result;
	} lies[] = {
		{ SUPER_AT, 0, -EMEDIUMTYPE },
		{ SUPER_AT + 86, EROFS_DEVICES_MAX + 1, -EBADMSG },
		{ SUPER_AT + 86, UINT16_MAX, -EBADMSG },
		{ SUPER_AT + 86, 56, -EBADMSG },	 /* beyond the end of the file */
		{ SUPER_AT + 88, 0, -EBADMSG },		 /* before the superblock */
		{ SUPER_AT + 88, 8, -EBADMSG },		 /* in it */
		{ SUPER_AT + 88, UINT16_MAX, -EBADMSG }, /* beyond the end */
		{ SUPER_AT + 12, 0, -EBADMSG },
		{ SUPER_AT + 12, 63, -EBADMSG },
		{ SUPER_AT + 12, 255, -EBADMSG },
	};
	uint8_t image[IMAGE_BYTES];
	struct erofs_table table = { .count = 77 };

	for (unsigned i = 0; i < sizeof lies / sizeof *lies; i++) {
		image_make(image);
		put16(image, lies[i].at, (uint16_t)lies[i].value);
		cr_expect_eq(image_table(image, sizeof image, &table), lies[i].result, "lie %u", i);
		cr_expect_eq(table.count, 77, "what was returned is untouched");
	}
}

Test(erofs_table, every_cut_is_refused)
{
	uint8_t image[IMAGE_BYTES];
	struct erofs_table table;
	const unsigned end = (SLOTS_AT + 2) * SLOT_BYTES;

	image_make(image);
	for (unsigned bytes = 0; bytes < end; bytes++)
		cr_assert_eq(image_table(image, bytes, &table),
			     bytes < SUPER_AT + 128 ? -EMEDIUMTYPE : -EBADMSG, "%u", bytes);
	cr_assert_eq(image_table(image, end, &table), 0);
	erofs_table_done(&table);
}
