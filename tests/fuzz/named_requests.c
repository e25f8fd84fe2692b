/*
 * Requests of fuzz runs about what has a name on the engine: images and policies. Called by
 * fuzz_requests.c. Most of them make sense.
 */
#include "tests/fuzz/named_requests.h"

#include <string.h>

#include "tests/fuzz/choices.h"
#include "tests/hostile/client/payloads.h"

struct pack *image_choose(struct choices *c, struct dsec_wire_id sandbox)
{
	static const char *const names[] = { "tiny", "a/b:1", "", "../x" };
	static const char *const words[] = { "wipe:all", "scan:a canary", "wipe:/a", "base:x" };
	struct pack *pack = pack_new(sizeof pack->image);
	struct dsec_wire_image *image = &pack->image;

	image->verb = choose(c, 8) == 7 ? choose_byte(c) : 1 + choose(c, DSEC_IMAGE_HOTSET);
	if (image->verb == DSEC_IMAGE_IMPORT)
		image->kind = choose(c, 4);
	if (choose(c, 4) == 0)
		pack_text(pack, &image->tag, names[choose(c, 4)]);
	pack_text(pack, &image->name, image->verb == DSEC_IMAGE_LIST ? "" : names[choose(c, 4)]);
	if (image->verb >= DSEC_IMAGE_COMPOSE)
		image->flags = choose(c, 4) ? 0 : choose_byte(c);
	if (image->verb == DSEC_IMAGE_PACK || choose(c, 8) == 7)
		image->sandbox = sandbox;
	for (uint32_t i = choose(c, 4); image->verb >= DSEC_IMAGE_COMPOSE && i; i--) {
		const char *text = image->verb == DSEC_IMAGE_PACK ? words[choose(c, 4)] :
								    names[choose(c, 4)];

		pack_item(pack, &image->items, text,
			  (uint32_t)strlen(text) + (choose(c, 16) == 15));
	}
	if (choose(c, 16) == 15)
		image->items.bytes += choose_byte(c);
	return pack;
}

struct pack *fork_choose(struct choices *c)
{
	struct pack *pack = pack_new(sizeof pack->fork);

	pack->fork.count = choose(c, 8) == 7 ? (uint32_t)choose_byte(c) << 8 : choose(c, 6);
	if (choose(c, 16) == 15)
		pack->fork.reserved[0] = 1;
	return pack;
}

struct pack *policy_choose(struct choices *c)
{
	static const char *const names[] = { "mine", "default", "", "../x" };
	static const char *const documents[] = {
		"name: mine\nextends: default\nfiles: {hide: [/a]}\nphases: {v: verify}\n",
		"name: other\nextends: mine\n",
		"name: mine\nfiles: {hid: [/a]}\n",
		"",
	};
	struct pack *pack = pack_new(sizeof pack->policy);
	struct dsec_wire_policy *policy = &pack->policy;

	policy->verb = choose(c, 8) == 7 ? choose_byte(c) : 1 + choose(c, 5);
	policy->version = choose(c, 4) == 3 ? choose(c, 16) : 0;
	if (policy->verb > DSEC_POLICY_LOAD || choose(c, 4) == 3)
		pack_text(pack, &policy->name, names[choose(c, 4)]);
	if (policy->verb <= DSEC_POLICY_LOAD || choose(c, 8) == 7)
		pack_text(pack, &policy->document, documents[choose(c, 4)]);
	return pack;
}
