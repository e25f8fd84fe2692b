/* The name in a ClientHello: whole, in pieces, in records, and what is refused. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/names/hello.h"

struct bytes {
	uint8_t at[HELLO_BYTES_MAX + 4096];
	size_t count;
};

static void put(struct bytes *to, const void *bytes, size_t count)
{
	cr_assert_leq(to->count + count, sizeof to->at);
	memcpy(to->at + to->count, bytes, count);
	to->count += count;
}

static void put_number(struct bytes *to, size_t value, unsigned width)
{
	for (unsigned i = width; i > 0; i--)
		put(to, &(uint8_t){ (uint8_t)(value >> 8 * (i - 1)) }, 1);
}

static void put_part(struct bytes *to, const struct bytes *part, unsigned width)
{
	put_number(to, part->count, width);
	put(to, part->at, part->count);
}

static void put_extension(struct bytes *to, unsigned type, const struct bytes *what)
{
	put_number(to, type, 2);
	put_part(to, what, 2);
}

/* An entry of a list of names. */
static void put_name(struct bytes *to, unsigned type, const char *name, size_t count)
{
	put_number(to, type, 1);
	put_number(to, count, 2);
	put(to, name, count);
}

static void put_named(struct bytes *extensions, const char *name)
{
	struct bytes entry = { .count = 0 }, list = { .count = 0 };

	put_name(&entry, 0, name, strlen(name));
	put_part(&list, &entry, 2);
	put_extension(extensions, 0, &list);
}

/* The message, with extensions or (NULL) without. */
static struct bytes message_of(const struct bytes *extensions)
{
	static const uint8_t random[32] = { 1, 2, 3 }, suites[] = { 0x13, 1, 0x13, 2 };
	struct bytes body = { .count = 0 }, message = { .count = 0 };

	put_number(&body, 0x0303, 2);
	put(&body, random, sizeof random);
	put_number(&body, 32, 1);
	put(&body, random, 32);
	put_number(&body, sizeof suites, 2);
	put(&body, suites, sizeof suites);
	put_number(&body, 0x0100, 2);
	if (extensions)
		put_part(&body, extensions, 2);
	put_number(&message, 1, 1);
	put_part(&message, &body, 3);
	return message;
}

/* In records of at most so many bytes. */
static struct bytes records_of(const struct bytes *message, size_t record_bytes)
{
	struct bytes records = { .count = 0 };

	for (size_t at = 0; at < message->count; at += record_bytes) {
		const size_t left = message->count - at;
		const size_t count = left < record_bytes ? left : record_bytes;

		put_number(&records, 22, 1);
		put_number(&records, 0x0301, 2);
		put_number(&records, count, 2);
		put(&records, message->at + at, count);
	}
	return records;
}

static struct bytes hello_of(const char *name, size_t record_bytes)
{
	static const struct bytes other = { .at = { 2, 3, 4 }, .count = 3 };
	struct bytes extensions = { .count = 0 }, message;

	put_extension(&extensions, 43, &other);
	put_named(&extensions, name);
	put_extension(&extensions, 51, &other);
	message = message_of(&extensions);
	return records_of(&message, record_bytes);
}

static int read_of(const struct bytes *extensions, char *ret_name)
{
	const struct bytes message = message_of(extensions);
	const struct bytes records = records_of(&message, 16384);

	return hello_read(records.at, records.count, ret_name);
}

Test(hello, the_name_is_found_in_lower_case_however_it_is_cut_into_records)
{
	static const size_t sizes[] = { 1, 2, 3, 4, 5, 63, 64, 16384 };

	for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		const struct bytes hello = hello_of("Www.API.example", sizes[i]);
		char name[HELLO_NAME_BYTES] = "untouched";

		cr_assert_eq(hello_read(hello.at, hello.count, name), 0, "records of %zu",
			     sizes[i]);
		cr_expect_str_eq(name, "www.api.example");
		for (size_t cut = 0; cut < hello.count; cut++)
			cr_assert_eq(hello_read(hello.at, cut, name), -EAGAIN, "%zu of %zu", cut,
				     hello.count);
	}
}

Test(hello, who_names_nobody_is_told_from_who_speaks_something_else)
{
	static const struct bytes other = { .at = { 2, 3, 4 }, .count = 3 };
	struct bytes extensions = { .count = 0 }, hello;
	char name[HELLO_NAME_BYTES] = "untouched";

	cr_expect_eq(read_of(NULL, name), -ENOENT, "no extensions");
	cr_expect_eq(read_of(&extensions, name), -ENOENT, "none of them");
	put_extension(&extensions, 43, &other);
	cr_expect_eq(read_of(&extensions, name), -ENOENT, "others");
	cr_expect_eq(hello_read((const uint8_t *)"GET / HTTP/1.1\r\n", 16, name), -EPROTO);
	cr_expect_eq(hello_read((const uint8_t *)"SSH-2.0", 7, name), -EPROTO);
	cr_expect_eq(hello_read((const uint8_t *)"\x80\x2e\x01\x03\x01", 5, name), -EPROTO,
		     "SSL 2");
	cr_expect_eq(hello_read((const uint8_t *)"\x16\x02", 2, name), -EPROTO, "its version");
	cr_expect_eq(hello_read((const uint8_t *)"\x16\x03\x01\0\0", 5, name), -EPROTO,
		     "a record of nothing");
	cr_expect_eq(hello_read((const uint8_t *)"\x16\x03\x01\x40\x01", 5, name), -EPROTO,
		     "a record that is too long");
	cr_expect_eq(hello_read((const uint8_t *)"\x16\x03\x01\0\1\2", 6, name), -EPROTO,
		     "a server's");
	hello = hello_of("api.example", 16384);
	hello.at[hello.count++] = 22;
	cr_expect_eq(hello_read(hello.at, hello.count, name), 0, "what follows is not looked at");
	cr_expect_str_eq(name, "api.example");
}

Test(hello, what_a_server_may_understand_in_another_way_is_refused)
{
	static const char *const wrong[] = { "",      ".",   "a..example",  ".example",
					     "a b",   "a.",  "a\n.example", "\xc3\xa4.example",
					     "[::1]", "a/b", "a:443",	    "*.example" };
	struct bytes extensions = { .count = 0 }, list = { .count = 0 }, entry = { .count = 0 };
	char name[HELLO_NAME_BYTES] = "untouched", text[300];

	for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		const struct bytes hello = hello_of(wrong[i], 16384);

		cr_expect_eq(hello_read(hello.at, hello.count, name), -EPROTO, "\"%s\"", wrong[i]);
	}
	memset(text, 'a', sizeof text);
	text[64] = 0;
	cr_expect_eq(hello_read(hello_of(text, 16384).at, hello_of(text, 16384).count, name),
		     -EPROTO, "a part of 64 bytes");
	text[64] = 'a';
	for (int i = 50; i < 299; i += 50)
		text[i] = '.';
	text[299] = 0;
	cr_expect_eq(hello_read(hello_of(text, 16384).at, hello_of(text, 16384).count, name),
		     -EPROTO, "299 bytes");
	put_named(&extensions, "api.example");
	put_named(&extensions, "api.example");
	cr_expect_eq(read_of(&extensions, name), -EPROTO, "named twice");
	put_name(&entry, 0, "api.example", 11);
	put_name(&entry, 0, "bad.example", 11);
	put_part(&list, &entry, 2);
	extensions.count = 0;
	put_extension(&extensions, 0, &list);
	cr_expect_eq(read_of(&extensions, name), -EPROTO, "two names");
	entry.count = list.count = extensions.count = 0;
	put_name(&entry, 0, "api\0bad", 7);
	put_part(&list, &entry, 2);
	put_extension(&extensions, 0, &list);
	cr_expect_eq(read_of(&extensions, name), -EPROTO, "a NUL in it");
	cr_expect_str_eq(name, "untouched");
}

Test(hello, lengths_that_do_not_fit_are_refused_and_nothing_is_read_past_the_end)
{
	struct bytes hello = hello_of("api.example", 16384);
	char name[HELLO_NAME_BYTES];

	/* Each length that it has: session, suites, compressions, extensions, the name's. */
	for (size_t at = 9; at < hello.count; at++) {
		struct bytes wrong = hello;
		uint8_t *copy = malloc(wrong.count);
		int r;

		wrong.at[at] = 0xff;
		memcpy(copy, wrong.at, wrong.count);
		r = hello_read(copy, wrong.count, name);
		cr_expect(r == 0 || r == -EPROTO || r == -ENOENT, "at %zu: %d", at, r);
		free(copy);
	}
	hello.at[6] = 1; /* longer than anything that is read here */
	cr_expect_eq(hello_read(hello.at, hello.count, name), -EPROTO);
	cr_expect_eq(hello_read(hello.at, HELLO_BYTES_MAX + 1, name), -EPROTO);
}
