/*
 * Tests of engine/exec/exec_strings.c: whose variable a program gets, and in which order.
 */
#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/image.h"
#include "engine/config.h"
#include "engine/exec/exec_strings.h"
#include "engine/image/image.h"

struct payload {
	char bytes[64 << 10];
	uint32_t used;
};

static void item_add(struct payload *p, struct dsec_wire_items *items, const char *text)
{
	const uint32_t bytes = (uint32_t)strlen(text);

	if (!items->count)
		items->at = p->used;
	memcpy(p->bytes + p->used, &bytes, sizeof bytes);
	memcpy(p->bytes + p->used + sizeof bytes, text, bytes);
	p->used += (uint32_t)sizeof bytes + bytes;
	items->bytes = p->used - items->at;
	items->count++;
}

static void items_add(struct payload *p, struct dsec_wire_items *items, const char *const texts[])
{
	for (; *texts; texts++)
		item_add(p, items, *texts);
}

struct scene {
	struct image_record record;
	struct image *image;
	struct payload own, wished;
	struct dsec_wire_items own_env;
	struct dsec_wire_exec wish;
	struct run_spec spec;
};

static struct scene *scene_new(void)
{
	struct scene *scene = calloc(1, sizeof *scene);

	cr_assert_not_null(scene);
	scene->image = calloc(1, sizeof *scene->image);
	cr_assert_not_null(scene->image);
	scene->image->record = &scene->record;
	item_add(&scene->wished, &scene->wish.argv, "program");
	return scene;
}

static void image_env_add(struct scene *scene, const char *text)
{
	struct image_record *record = &scene->record;
	const uint32_t bytes = (uint32_t)strlen(text) + 1;

	memcpy(record->strings + record->string_bytes, text, bytes);
	record->string_bytes += bytes;
	record->env_count++;
}

static struct status scene_pack(struct scene *scene)
{
	const struct wire payload = { scene->wished.bytes, scene->wished.used };
	const struct exec_strings_of of = {
		.image = scene->image,
		.env = { scene->own.bytes, scene->own.used },
		.env_count = scene->own_env.count,
		.payload = &payload,
		.wish = &scene->wish,
		.user = "",
	};

	return exec_strings(&of, &scene->spec);
}

/* What the program gets behind its arguments, one a line. */
static void scene_expect(struct scene *scene, const char *environment)
{
	const char *at = scene->spec.strings;
	char got[1024] = "";
	size_t used = 0;

	for (uint32_t i = 0; i < scene->spec.argument_count + scene->spec.environment_count; i++) {
		if (i >= scene->spec.argument_count)
			used += (size_t)snprintf(got + used, sizeof got - used, "%s\n", at);
		at += strlen(at) + 1;
	}
	cr_assert_str_eq(got, environment);
}

static void scene_free(struct scene *scene)
{
	free((void *)scene->spec.strings);
	free(scene->image);
	free(scene);
}

Test(exec_strings, the_nearest_says_what_a_variable_is_and_all_keep_their_order)
{
	struct scene *scene = scene_new();

	items_add(&scene->wished, &scene->wish.env,
		  (const char *const[]){ "Z=wished", "B=wished", "Z=again", "LONG=1", NULL });
	items_add(&scene->own, &scene->own_env,
		  (const char *const[]){ "C=own", "B=own", "A=own", "C=twice", "LON=2", NULL });
	image_env_add(scene, "C=image");
	image_env_add(scene, "PATH=/image");
	image_env_add(scene, "B=image");
	image_env_add(scene, "LONGER=3");
	cr_assert_eq(scene_pack(scene).code, DSEC_OK);
	scene_expect(scene, "Z=wished\nB=wished\nZ=again\nLONG=1\nC=own\nA=own\nC=twice\nLON=2\n"
			    "PATH=/image\nLONGER=3\n");
	cr_assert(scene->spec.wants_home);
	scene_free(scene);
}

Test(exec_strings, what_nobody_says_comes_from_the_defaults)
{
	struct scene *scene = scene_new();

	items_add(&scene->wished, &scene->wish.env,
		  (const char *const[]){ "HOME=", "PATHS=x", "", "=", NULL });
	cr_assert_eq(scene_pack(scene).code, DSEC_OK);
	scene_expect(scene, "HOME=\nPATHS=x\n\n=\nPATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:"
			    "/usr/bin:/sbin:/bin\n");
	cr_assert_not(scene->spec.wants_home);
	scene_free(scene);
}

/* Each of the sandbox's once as it is, once overridden: by a search that misses none. */
Test(exec_strings, as_many_as_there_may_be_are_each_found)
{
	struct scene *scene = scene_new();
	char text[32];

	for (int i = 0; i < EXEC_ENV_COUNT_MAX; i++) {
		(void)snprintf(text, sizeof text, "N%d=own", i * 7919 % 1024);
		item_add(&scene->own, &scene->own_env, text);
		(void)snprintf(text, sizeof text, "N%d=wish", i * 7919 % 1024 ^ (i % 2 ? 1024 : 0));
		item_add(&scene->wished, &scene->wish.env, text);
	}
	cr_assert_eq(scene_pack(scene).code, DSEC_OK);
	cr_assert_eq(scene->spec.environment_count,
		     EXEC_ENV_COUNT_MAX + EXEC_ENV_COUNT_MAX / 2 + 1);
	scene_free(scene);
}
