/*
 * Who is who. Called by control_open.c at the start, by client.c for each connection, and by what
 * counts. Must hold: whoever is turned away learns nothing of tenants, and how long it takes says
 * nothing of how much of a token was right.
 */
#include "engine/tenant/tenant.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/config_tenant.h"
#include "engine/shard.h"

enum { EVERYONE_RECORDS = 1024 };

/* One line; the keeper's user alone may read the file, else it is no secret. */
static int token_read(const char *path, struct tenant *tenant)
{
	char token[DSEC_TOKEN_BYTES_MAX + 2];
	auto_close int fd = -1;
	struct stat st;
	ssize_t n;

	if (!path)
		return 0;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &st) < 0) {
		log_error("--token-file cannot be read path=\"%s\" err=%s", path, strerror(errno));
		return -EACCES;
	}
	if (!S_ISREG(st.st_mode) || st.st_mode & 077) {
		log_error("--token-file must be a file with mode 0600 path=\"%s\"", path);
		return -EPERM;
	}
	n = read(fd, token, sizeof token);
	while (n > 0 && (token[n - 1] == '\n' || token[n - 1] == '\r'))
		n--;
	if (n <= 0 || n > DSEC_TOKEN_BYTES_MAX) {
		log_error("--token-file must hold 1 to %d bytes path=\"%s\"", DSEC_TOKEN_BYTES_MAX,
			  path);
		return -EINVAL;
	}
	tenant->token = malloc((size_t)n);
	if (!tenant->token)
		return -ENOMEM;
	memcpy(tenant->token, token, (size_t)n);
	tenant->token_bytes = (uint32_t)n;
	return 0;
}

/* In a time that does not tell how much of it was right. */
static bool token_is(const struct tenant *tenant, const char *token, uint32_t bytes)
{
	unsigned char differ = bytes != tenant->token_bytes;

	for (uint32_t i = 0; i < tenant->token_bytes; i++)
		differ |= (unsigned char)(tenant->token[i] ^ (i < bytes ? token[i] : 0));
	return tenant->token && !differ;
}

static int token_check(const struct node *node, const struct tenant *tenant)
{
	for (uint32_t i = 0; tenant->token && i < tenant->index; i++) {
		if (!token_is(&node->tenants[i], tenant->token, tenant->token_bytes))
			continue;
		log_error("tenants \"%s\" and \"%s\" have the same token", node->tenants[i].name,
			  tenant->name);
		return -EINVAL;
	}
	return 0;
}

static int tenant_open(struct node *node, uint32_t index)
{
	const struct config *config = node->config;
	struct tenant *tenant = &node->tenants[index];
	int r;

	*tenant = (struct tenant){
		.config = &config->tenants[index],
		.name = config->tenants[index].name,
		.index = index,
		.has_limits = config->tenant_count > 1,
	};
	for (int i = 0; i < TENANT_LIMITS; i++)
		tenant->has_limits |= tenant->config->limits[i];
	/* The engine's own are enough where nobody else is. */
	for (int i = 0; i < TENANT_LIMITS; i++)
		if (tenant->has_limits || i == TENANT_RECORDS)
			tenant->limits[i] = tenant_limit(config, index, (enum tenant_limit)i);
	tenant->creates.bucket = bucket_of(tenant->limits[TENANT_CREATES], 1);
	r = token_read(index ? tenant->config->token_path : config->token_path, tenant);
	return r < 0 ? r : token_check(node, tenant);
}

int tenants_open(struct node *node)
{
	const struct config *config = node->config;
	struct tenant *everyone;
	int r = 0;

	node->tenants = aligned_alloc(64, sizeof *node->tenants * (config->tenant_count + 1));
	if (!node->tenants)
		return -ENOMEM;
	memset(node->tenants, 0, sizeof *node->tenants * (config->tenant_count + 1));
	node->tenant_count = config->tenant_count;
	for (uint32_t i = 0; r == 0 && i < config->tenant_count; i++)
		r = tenant_open(node, i);
	everyone = &node->tenants[config->tenant_count];
	everyone->name = TENANT_EVERYONE;
	everyone->index = config->tenant_count;
	everyone->is_everyone = true;
	everyone->limits[TENANT_RECORDS] = EVERYONE_RECORDS;
	for (int i = 0; r == 0 && i < TENANT_LIMITS; i++)
		if (tenant_limits_exceed(config, (enum tenant_limit)i))
			log_warning("tenants were given more than the engine has: %s; one can be "
				    "refused because of another, continuing",
				    tenant_limit_name((enum tenant_limit)i));
	return r;
}

void tenants_close(struct node *node)
{
	for (uint32_t i = 0; node->tenants && i <= node->tenant_count; i++)
		free(node->tenants[i].token);
	free(node->tenants);
	node->tenants = NULL;
}

/* ---- who is it ---- */

static struct identity turned_away(uint32_t code, const char *text)
{
	return (struct identity){ .code = code, .text = text };
}

/* All are compared, whichever it is. */
static struct tenant *tenant_of_token(const struct node *node, const struct caller *caller,
				      bool *ret_any)
{
	struct tenant *found = NULL;

	*ret_any = false;
	for (uint32_t i = 0; i < node->tenant_count; i++) {
		*ret_any |= node->tenants[i].token != NULL;
		if (token_is(&node->tenants[i], caller->token, caller->token_bytes))
			found = &node->tenants[i];
	}
	return found;
}

static struct tenant *tenant_of_uid(const struct node *node, uint32_t uid)
{
	for (uint32_t i = 0; i < node->tenant_count; i++)
		for (uint32_t k = 0; k < node->tenants[i].config->uid_count; k++)
			if (node->tenants[i].config->uids[k] == uid)
				return &node->tenants[i];
	return NULL;
}

/*
 * A token counts before everything else. Without one it is the tenant of its socket, where that has
 * no token; by the engine's own socket that of its uid, if there is one.
 */
static struct identity tenant_itself(const struct node *node, const struct caller *caller)
{
	struct identity who = { .tenant = &node->tenants[caller->door] };
	bool has_tokens;
	struct tenant *named = tenant_of_token(node, caller, &has_tokens);

	if (caller->token_bytes && has_tokens) {
		who.tenant = named;
	} else if (!caller->door) {
		named = tenant_of_uid(node, caller->uid);
		if (named)
			who.tenant = named;
	}
	if (!who.tenant || (who.tenant->token && who.tenant != named))
		return turned_away(DSEC_DENIED, "the token is not the engine's");
	return who;
}

static struct tenant *tenant_named(const struct node *node, const char *name)
{
	for (uint32_t i = 0; i <= node->tenant_count; i++)
		if (!strcmp(node->tenants[i].name, name))
			return &node->tenants[i];
	return NULL;
}

struct identity tenant_identify(const struct node *node, const struct caller *caller)
{
	struct identity who = tenant_itself(node, caller);

	if (!who.tenant || !*caller->acts_for || !strcmp(who.tenant->name, caller->acts_for))
		return who;
	if (!who.tenant->config->is_gateway)
		return turned_away(DSEC_DENIED, "only a gateway acts for another tenant");
	who.tenant = tenant_named(node, caller->acts_for);
	return who.tenant ? who : turned_away(DSEC_ABSENT, "there is no tenant of that name");
}

/* ---- counts ---- */

bool tenant_take(struct tenant *tenant, enum tenant_limit limit)
{
	uint32_t used = __atomic_load_n(&tenant->used[limit], __ATOMIC_RELAXED);

	do {
		if (tenant->limits[limit] && used >= tenant->limits[limit])
			return false;
	} while (!__atomic_compare_exchange_n(&tenant->used[limit], &used, used + 1, true,
					      __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return true;
}

void tenant_give(struct tenant *tenant, enum tenant_limit limit)
{
	(void)__atomic_fetch_sub(&tenant->used[limit], 1, __ATOMIC_RELAXED);
}

/* ---- images ---- */

/* Whose name the first part of an image's name is; the default tenant's: all that is nobody's. */
static const struct tenant *image_owner(const struct node *node, const char *name)
{
	size_t bytes = strcspn(name, "/+");

	for (uint32_t i = 1; name[bytes] == '/' && i < node->tenant_count; i++)
		if (strlen(node->tenants[i].name) == bytes &&
		    !memcmp(node->tenants[i].name, name, bytes))
			return &node->tenants[i];
	return &node->tenants[0];
}

bool tenant_reads_image(const struct tenant *tenant, const struct node *node, const char *name)
{
	while (name) {
		const struct tenant *owner = image_owner(node, name);

		if (owner->index && !tenant_sees(tenant, owner))
			return false;
		name = strchr(name, '+');
		name = name ? name + 1 : NULL;
	}
	return true;
}

bool tenant_owns_image(const struct tenant *tenant, const struct node *node, const char *name)
{
	return tenant_sees(tenant, image_owner(node, name));
}
