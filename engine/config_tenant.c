/*
 * Owns what --tenant may say. Called by config.c, and by who divides the engine's limits among the
 * tenants. Must hold: a key that is not known, comes twice or makes no sense is refused by name.
 */
#include "engine/config_tenant.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

enum key_type { KEY_NAME, KEY_PATH, KEY_MODE, KEY_UID, KEY_FLAG, KEY_LIMIT };

struct key {
	const char *name;
	enum key_type type;
	size_t at; /* of a path or flag in struct tenant_config; of a limit: which */
	uint64_t max;
};

#define FIELD(name) offsetof(struct tenant_config, name)

static const struct key keys[] = {
	{ "name", KEY_NAME, 0, 0 },
	{ "socket", KEY_PATH, FIELD(socket_path), 0 },
	{ "mode", KEY_MODE, 0, 0777 },
	{ "token-file", KEY_PATH, FIELD(token_path), 0 },
	{ "uid", KEY_UID, 0, UINT32_MAX - 1 },
	{ "gateway", KEY_FLAG, FIELD(is_gateway), 0 },
	{ "builder", KEY_FLAG, FIELD(is_builder), 0 },
	{ "sandboxes-max", KEY_LIMIT, TENANT_SANDBOXES, SLOTS_PER_INSTANCE },
	{ "creates-per-s", KEY_LIMIT, TENANT_CREATES, 1000000 },
	{ "execs-max", KEY_LIMIT, TENANT_EXECS, 65536 },
	{ "clients-max", KEY_LIMIT, TENANT_CLIENTS, 16384 },
	{ "records-max", KEY_LIMIT, TENANT_RECORDS, RECORDS_PER_SHARD },
};

enum { KEYS = sizeof keys / sizeof *keys };

static int refuse(const char *key, const char *what)
{
	fprintf(stderr, "dsecd: --tenant: %s: %s\n", key, what);
	return -EINVAL;
}

bool tenant_name_is_good(const char *name)
{
	size_t bytes = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-");

	return !name[bytes] && bytes >= 1 && bytes <= TENANT_NAME_MAX;
}

static int number_read(const struct key *key, const char *text, uint64_t *ret)
{
	char what[96], *end;

	errno = 0;
	*ret = strtoull(text, &end, key->type == KEY_MODE ? 8 : 10);
	if (*text >= '0' && *text <= '9' && !*end && !errno && *ret <= key->max &&
	    (key->type == KEY_UID || *ret))
		return 0;
	(void)snprintf(what, sizeof what,
		       key->type == KEY_MODE ? "'%.32s' is not from 1 to %llo, in octal" :
		       key->type == KEY_UID  ? "'%.32s' is not from 0 to %llu" :
					       "'%.32s' is not from 1 to %llu",
		       text, (unsigned long long)key->max);
	return refuse(key->name, what);
}

static int key_set(struct tenant_config *tenant, const struct key *key, const char *text)
{
	const char **path = (const char **)((char *)tenant + key->at);
	uint64_t number;
	int r;

	switch (key->type) {
	case KEY_NAME:
		tenant->name = text;
		return tenant_name_is_good(text) ? 0 : refuse("name", "1 to 24 of a-z, 0-9 and -");
	case KEY_PATH:
		*path = text;
		return *text == '/' ? 0 : refuse(key->name, "wants a path that begins with /");
	case KEY_FLAG:
		*(bool *)((char *)tenant + key->at) = true;
		return *text ? refuse(key->name, "takes no value") : 0;
	default:
		break;
	}
	r = number_read(key, text, &number);
	if (r < 0)
		return r;
	if (key->type == KEY_MODE)
		tenant->socket_mode = (uint32_t)number;
	else if (key->type == KEY_LIMIT)
		tenant->limits[key->at] = (uint32_t)number;
	else if (tenant->uid_count == TENANT_UIDS_MAX)
		return refuse("uid", "at most 16 of them");
	else
		tenant->uids[tenant->uid_count++] = (uint32_t)number;
	return 0;
}

static const struct key *key_find(const char *name)
{
	for (int i = 0; i < KEYS; i++)
		if (!strcmp(keys[i].name, name))
			return &keys[i];
	return NULL;
}

/* `text` is cut into its words, which the tenant points to. */
static int words_read(struct tenant_config *tenant, char *text)
{
	uint32_t seen = 0;
	char *rest = text, *word;
	int r = 0;

	while (r == 0 && (word = strsep(&rest, ","))) {
		char *value = strchr(word, '=');
		const struct key *key;

		if (value)
			*value++ = 0;
		key = key_find(word);
		if (!key)
			return refuse(word, "there is no such key");
		if (!value && key->type != KEY_FLAG)
			return refuse(word, "wants a value");
		if (seen & 1u << (key - keys) && key->type != KEY_UID)
			return refuse(word, "comes twice");
		seen |= 1u << (key - keys);
		r = key_set(tenant, key, value ? value : "");
	}
	return r;
}

/* What the default one is known by stands in options of its own. */
static int default_check(const struct tenant_config *tenant)
{
	if (tenant->socket_path || tenant->socket_mode || tenant->token_path || tenant->uid_count)
		return refuse("default",
			      "has the engine's socket: --socket, --socket-mode, --token-file");
	return 0;
}

static int tenant_place(const struct config *config, const char *name, uint32_t *ret)
{
	for (*ret = 0; *ret < config->tenant_count; ++*ret)
		if (!strcmp(config->tenants[*ret].name, name))
			return *ret || config->tenants[0].owned ? refuse(name, "is named twice") :
								  0;
	return *ret < TENANTS_MAX ? 0 : refuse(name, "there are 64 already");
}

int tenant_parse(struct config *config, const char *value)
{
	struct tenant_config tenant = { .owned = strdup(value) };
	uint32_t place = 0;
	int r;

	if (!tenant.owned)
		return -ENOMEM;
	r = words_read(&tenant, tenant.owned);
	if (r == 0 && !tenant.name)
		r = refuse("name", "is missing");
	if (r == 0)
		r = tenant_place(config, tenant.name, &place);
	if (r == 0 && place == 0)
		r = default_check(&tenant);
	if (r < 0) {
		free(tenant.owned);
		return r;
	}
	if (tenant.socket_path && !tenant.socket_mode)
		tenant.socket_mode = 0600;
	config->tenants[place] = tenant;
	config->tenant_count += place == config->tenant_count;
	return 0;
}

void tenants_free(struct config *config)
{
	for (uint32_t i = 0; i < config->tenant_count; i++) {
		free(config->tenants[i].owned);
		config->tenants[i] = (struct tenant_config){ 0 };
	}
	config->tenant_count = 0;
}

/* ---- all of them ---- */

static int socket_check(const struct config *config, uint32_t at)
{
	const char *path = config->tenants[at].socket_path;

	if (!path)
		return config->tenants[at].socket_mode ? refuse("mode", "without a socket") : 0;
	if (strlen(path) >= sizeof(((struct sockaddr_un *)0)->sun_path))
		return refuse("socket", "its path is too long for a socket");
	if (!strcmp(path, config->socket_path))
		return refuse(path, "is the engine's own socket");
	for (uint32_t i = 1; i < at; i++)
		if (config->tenants[i].socket_path && !strcmp(config->tenants[i].socket_path, path))
			return refuse(path, "is another tenant's socket");
	return 0;
}

static bool has_uid(const struct tenant_config *tenant, uint32_t uid)
{
	for (uint32_t i = 0; i < tenant->uid_count; i++)
		if (tenant->uids[i] == uid)
			return true;
	return false;
}

static int uids_check(const struct config *config, uint32_t at)
{
	const struct tenant_config *tenant = &config->tenants[at];
	char uid[16];

	if (tenant->uid_count && (tenant->token_path || tenant->socket_path))
		return refuse("uid", "goes with the engine's own socket, and without a token");
	for (uint32_t i = 0; i < at; i++) {
		for (uint32_t k = 0; k < tenant->uid_count; k++) {
			(void)snprintf(uid, sizeof uid, "uid %u", tenant->uids[k]);
			if (has_uid(&config->tenants[i], tenant->uids[k]))
				return refuse(uid, "is another tenant's");
		}
	}
	return 0;
}

int tenants_check(const struct config *config)
{
	int r = 0;

	for (uint32_t i = 1; r == 0 && i < config->tenant_count; i++) {
		r = socket_check(config, i);
		if (r == 0)
			r = uids_check(config, i);
	}
	return r;
}

/* ---- limits ---- */

static uint32_t engine_limit(const struct config *config, enum tenant_limit limit)
{
	switch (limit) {
	case TENANT_SANDBOXES:
		return config->sandboxes_max;
	case TENANT_CREATES:
		return config->creates_per_s;
	case TENANT_EXECS:
		return config->execs_max;
	case TENANT_CLIENTS:
		return config->clients_max;
	case TENANT_RECORDS:
		return RECORDS_PER_SHARD;
	case TENANT_LIMITS:
		break;
	}
	return 0;
}

/* What was given; *ret_without: how many were given nothing. */
static uint64_t given_sum(const struct config *config, enum tenant_limit limit,
			  uint32_t *ret_without)
{
	uint64_t sum = 0;

	*ret_without = 0;
	for (uint32_t i = 0; i < config->tenant_count; i++) {
		sum += config->tenants[i].limits[limit];
		*ret_without += !config->tenants[i].limits[limit];
	}
	return sum;
}

uint32_t tenant_limit(const struct config *config, uint32_t tenant, enum tenant_limit limit)
{
	uint32_t given = config->tenants[tenant].limits[limit], without;
	uint32_t whole = engine_limit(config, limit);
	uint64_t sum = given_sum(config, limit, &without), part;

	if (given || !whole)
		return given;
	part = sum < whole ? (whole - sum) / without : 0;
	return part ? (uint32_t)part : 1;
}

bool tenant_limits_exceed(const struct config *config, enum tenant_limit limit)
{
	uint32_t without, whole = engine_limit(config, limit);

	return whole && given_sum(config, limit, &without) + without > whole;
}

const char *tenant_limit_name(enum tenant_limit limit)
{
	for (int i = 0; i < KEYS; i++)
		if (keys[i].type == KEY_LIMIT && keys[i].at == limit)
			return keys[i].name;
	return "";
}
