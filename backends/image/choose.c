/*
 * Which of an archive's images an import takes. Called by manifest.c. Must hold: never a guess. Of
 * several that fit one must be asked for by its tag, and one that was asked for must be there; what
 * fails names the tags that there are.
 */
#include "backends/image/choose.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backends/image/blobs.h"
#include "engine/base/json.h"

enum { TAGS_BYTES = 256 };

#ifdef __x86_64__
static const char architecture[] = "amd64";
#else
static const char architecture[] = "arm64";
#endif

/* What was seen of those that might have been meant. */
struct choice {
	struct import *in;
	const char *tag;
	char tags[TAGS_BYTES]; /* "a, b" of all of them */
	char digest[IMAGE_DIGEST_BYTES];
	uint32_t fit, tagged; /* tagged: whatever machine it is for */
	bool several;	      /* of those that fit, not one under several tags */
};

static bool text_of(const struct json_value *object, const char *key, char *ret, size_t bytes)
{
	struct json_value value;

	return json_member(object, key, &value) >= 0 && value.kind == JSON_STRING &&
	       json_to_string(&value, ret, bytes) >= 0;
}

/* "a:1" is meant by itself and by "1". */
static bool tag_is(const char *name, const char *tag)
{
	const size_t bytes = strlen(name), wanted = strlen(tag);

	if (bytes < wanted || strcmp(name + bytes - wanted, tag) != 0)
		return false;
	return bytes == wanted || name[bytes - wanted - 1] == ':';
}

static void tag_note(struct choice *choice, const char *name)
{
	const size_t used = strlen(choice->tags);

	/* Cut where there are too many: who reads it sees that it ends in a comma. */
	(void)snprintf(choice->tags + used, sizeof choice->tags - used, "%s%s", used ? ", " : "",
		       name);
}

/* One that fits, and none of several that have the same contents. */
static bool choice_take(struct choice *choice, const char *digest)
{
	if (choice->fit++) {
		choice->several |= !*digest || strcmp(digest, choice->digest) != 0;
		return false;
	}
	(void)snprintf(choice->digest, sizeof choice->digest, "%s", digest);
	return true;
}

static int choice_end(const struct choice *choice, const char *document)
{
	struct import *in = choice->in;

	if (!choice->tagged && *choice->tag)
		return import_fail(in, ENOENT, *choice->tags ? choice->tags : choice->tag,
				   *choice->tags ? "no image has that tag, but" :
						   "no image has a tag");
	if (!choice->fit)
		return import_fail(in, EINVAL, document, "no image for linux on this machine");
	if (!choice->several)
		return 1;
	if (*choice->tags)
		return import_fail(in, EINVAL, choice->tags, "several images, ask for a tag");
	return import_fail(in, EINVAL, document, "several images: an archive of one is needed");
}

/* ---- OCI layouts ---- */

/* Of several: for this machine. One that names no platform is taken, unless it says it is none. */
static bool is_for_us(const struct json_value *descriptor)
{
	struct json_value platform;
	char is[64];

	if (json_member(descriptor, "platform", &platform) < 0)
		return true;
	return text_of(&platform, "architecture", is, sizeof is) && !strcmp(is, architecture) &&
	       text_of(&platform, "os", is, sizeof is) && !strcmp(is, "linux");
}

static bool descriptor_has_tag(struct choice *choice, const struct json_value *descriptor)
{
	static const char *const keys[] = { "org.opencontainers.image.ref.name",
					    "io.containerd.image.name" };
	struct json_value notes;
	char name[BLOB_NAME_BYTES];
	bool noted = false, fits = !*choice->tag;

	if (json_member(descriptor, "annotations", &notes) < 0)
		return fits;
	for (int i = 0; i < 2; i++) {
		if (!text_of(&notes, keys[i], name, sizeof name))
			continue;
		if (!noted)
			tag_note(choice, name);
		noted = true;
		fits |= tag_is(name, choice->tag);
	}
	return fits;
}

int choose_descriptor(struct import *in, const struct json_value *index, bool has_tags,
		      struct json_value *ret)
{
	struct choice choice = { .in = in, .tag = has_tags ? in->tag : "" };
	char digest[IMAGE_DIGEST_BYTES] = "";
	struct json_value list, each;
	size_t cursor = 0;

	if (json_member(index, "manifests", &list) < 0 || list.kind != JSON_ARRAY)
		return 0;
	while (json_next(&list, &cursor, &each) >= 0) {
		if (each.kind != JSON_OBJECT || !descriptor_has_tag(&choice, &each))
			continue;
		choice.tagged++;
		if (!is_for_us(&each))
			continue;
		if (!text_of(&each, "digest", digest, sizeof digest))
			*digest = 0; /* told when it is read */
		if (choice_take(&choice, digest))
			*ret = each;
	}
	return choice_end(&choice, "index.json");
}

/* ---- docker archives ---- */

static bool docker_has_tag(struct choice *choice, const struct json_value *image)
{
	struct json_value tags, each;
	char name[BLOB_NAME_BYTES];
	bool fits = !*choice->tag;
	size_t cursor = 0;

	if (json_member(image, "RepoTags", &tags) < 0 || tags.kind != JSON_ARRAY)
		return fits;
	while (json_next(&tags, &cursor, &each) >= 0) {
		if (each.kind != JSON_STRING || json_to_string(&each, name, sizeof name) < 0)
			continue;
		tag_note(choice, name);
		fits |= tag_is(name, choice->tag);
	}
	return fits;
}

int choose_docker(struct import *in, const struct json_value *all, struct json_value *ret)
{
	struct choice choice = { .in = in, .tag = in->tag };
	struct json_value each;
	size_t cursor = 0;

	while (json_next(all, &cursor, &each) >= 0) {
		if (each.kind != JSON_OBJECT)
			return import_fail(in, EINVAL, "manifest.json", "malformed JSON");
		if (!docker_has_tag(&choice, &each))
			continue;
		choice.tagged++;
		if (choice_take(&choice, ""))
			*ret = each;
	}
	return choice_end(&choice, "manifest.json");
}
