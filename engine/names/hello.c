/*
 * Reads a ClientHello of TLS 1.0 to 1.3. Called by outbound.c, by a fuzzer and by tests, with
 * whatever a sandbox sends. Must hold: nothing is read past `count`; who would be understood in two
 * ways is refused, so that a server cannot find another name in it than is found here.
 *
 *	record  { 22, version, length } { part of a message }, one after the other
 *	message { 1, length } version random session suites compressions extensions
 */
#include "engine/names/hello.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

enum {
	RECORD_HEAD_BYTES = 5,
	RECORD_HANDSHAKE = 22,
	RECORD_BYTES_MAX = 1 << 14,
	VERSION_MAJOR = 3,
	MESSAGE_HEAD_BYTES = 4,
	MESSAGE_HELLO = 1,
	RANDOM_BYTES = 32,
	SESSION_BYTES_MAX = 32,
	EXTENSION_NAME = 0,
	NAME_HOST = 0,
	NAME_BYTES_MAX = 253,
	LABEL_BYTES_MAX = 63,
};

/* What is left of a part of it. */
struct reader {
	const uint8_t *at;
	size_t bytes;
	bool failed; /* more was wanted than there is */
};

static const uint8_t *take(struct reader *reader, size_t bytes)
{
	const uint8_t *at = reader->at;

	if (reader->failed || bytes > reader->bytes) {
		reader->failed = true;
		return NULL;
	}
	reader->at += bytes;
	reader->bytes -= bytes;
	return at;
}

static uint32_t number_take(struct reader *reader, unsigned width)
{
	const uint8_t *at = take(reader, width);
	uint32_t value = 0;

	for (unsigned i = 0; at && i < width; i++)
		value = value << 8 | at[i];
	return value;
}

/* A part that says first, in so many bytes, how long it is. */
static struct reader part_take(struct reader *reader, unsigned width)
{
	const size_t bytes = number_take(reader, width);
	const uint8_t *at = take(reader, bytes);

	return (struct reader){ .at = at, .bytes = at ? bytes : 0, .failed = !at };
}

/* ---- records ---- */

/* What of a record's head is there says nothing else than that it is one of a handshake. */
static bool head_is_good(const uint8_t *head, size_t bytes)
{
	const size_t record = bytes < RECORD_HEAD_BYTES ? 1 : (size_t)head[3] << 8 | head[4];

	return head[0] == RECORD_HANDSHAKE && (bytes < 2 || head[1] == VERSION_MAJOR) && record &&
	       record <= RECORD_BYTES_MAX;
}

/* Whether the message is whole, as far as it is put together: else -EAGAIN or -EPROTO. */
static int message_check(const uint8_t *message, size_t bytes)
{
	size_t wanted;

	if (bytes && message[0] != MESSAGE_HELLO)
		return -EPROTO;
	if (bytes < MESSAGE_HEAD_BYTES)
		return -EAGAIN;
	wanted = (size_t)message[1] << 16 | (size_t)message[2] << 8 | message[3];
	if (wanted > HELLO_BYTES_MAX - MESSAGE_HEAD_BYTES - RECORD_HEAD_BYTES)
		return -EPROTO;
	if (bytes < MESSAGE_HEAD_BYTES + wanted)
		return -EAGAIN;
	/* Nothing may follow before the server has answered. */
	return bytes == MESSAGE_HEAD_BYTES + wanted ? 0 : -EPROTO;
}

/* The message without the heads of its records. */
static int message_join(const uint8_t *bytes, size_t count, uint8_t *message, size_t *ret_bytes)
{
	size_t at = 0, joined = 0;
	int r = -EAGAIN;

	while (r == -EAGAIN && at < count) {
		const uint8_t *head = bytes + at;
		const size_t left = count - at;
		size_t record;

		if (!head_is_good(head, left))
			return -EPROTO;
		if (left <= RECORD_HEAD_BYTES)
			return -EAGAIN;
		record = (size_t)head[3] << 8 | head[4];
		if (record > left - RECORD_HEAD_BYTES)
			record = left - RECORD_HEAD_BYTES;
		memcpy(message + joined, head + RECORD_HEAD_BYTES, record);
		joined += record;
		at += RECORD_HEAD_BYTES + record;
		r = message_check(message, joined);
	}
	*ret_bytes = joined;
	return r;
}

/* ---- the name ---- */

static char letter_fold(uint8_t letter)
{
	return letter >= 'A' && letter <= 'Z' ? (char)(letter - 'A' + 'a') : (char)letter;
}

static bool is_of_names(uint8_t letter)
{
	return (letter >= 'a' && letter <= 'z') || (letter >= '0' && letter <= '9') ||
	       letter == '-' || letter == '_';
}

/* As the resolver would have been asked for it. */
static int host_read(const struct reader *host, char *ret)
{
	char name[HELLO_NAME_BYTES];
	size_t label = 0;

	if (!host->bytes || host->bytes > NAME_BYTES_MAX)
		return -EPROTO;
	for (size_t i = 0; i < host->bytes; i++) {
		name[i] = letter_fold(host->at[i]);
		if (name[i] == '.' ? !label : !is_of_names((uint8_t)name[i]))
			return -EPROTO;
		label = name[i] == '.' ? 0 : label + 1;
		if (label > LABEL_BYTES_MAX)
			return -EPROTO;
	}
	if (!label)
		return -EPROTO; /* a dot at its end */
	name[host->bytes] = 0;
	memcpy(ret, name, host->bytes + 1);
	return 0;
}

/* One name of a host, and nothing else. */
static int names_read(struct reader names, char *ret)
{
	struct reader list = part_take(&names, 2);
	const uint32_t type = number_take(&list, 1);
	const struct reader host = part_take(&list, 2);

	if (names.failed || names.bytes || list.failed || list.bytes || type != NAME_HOST)
		return -EPROTO;
	return host_read(&host, ret);
}

static int extensions_read(struct reader *message, char *ret)
{
	struct reader all = part_take(message, 2);
	bool is_named = false;
	int r = 0;

	while (r == 0 && !all.failed && all.bytes) {
		const uint32_t type = number_take(&all, 2);
		const struct reader extension = part_take(&all, 2);

		if (all.failed || type != EXTENSION_NAME)
			continue;
		r = is_named ? -EPROTO : names_read(extension, ret);
		is_named = true;
	}
	if (r == 0 && (all.failed || message->failed || message->bytes))
		r = -EPROTO;
	return r < 0 ? r : is_named ? 0 : -ENOENT;
}

static int message_read(const uint8_t *bytes, size_t count, char *ret)
{
	struct reader message = { .at = bytes + MESSAGE_HEAD_BYTES,
				  .bytes = count - MESSAGE_HEAD_BYTES };
	const uint32_t version = number_take(&message, 2);
	struct reader session, suites, compressions;

	(void)take(&message, RANDOM_BYTES); /* whether it was there shows below, as of all */
	session = part_take(&message, 1);
	suites = part_take(&message, 2);
	compressions = part_take(&message, 1);
	if (message.failed || version >> 8 != VERSION_MAJOR || session.bytes > SESSION_BYTES_MAX ||
	    !suites.bytes || suites.bytes % 2 || !compressions.bytes)
		return -EPROTO;
	return message.bytes ? extensions_read(&message, ret) : -ENOENT;
}

int hello_read(const uint8_t *bytes, size_t count, char ret_name[static HELLO_NAME_BYTES])
{
	uint8_t message[HELLO_BYTES_MAX];
	char name[HELLO_NAME_BYTES];
	size_t message_bytes;
	int r;

	if (count > HELLO_BYTES_MAX)
		return -EPROTO;
	r = message_join(bytes, count, message, &message_bytes);
	if (r == 0)
		r = message_read(message, message_bytes, name);
	if (r == 0)
		memcpy(ret_name, name, strlen(name) + 1);
	return r < 0 ? r : 0;
}
