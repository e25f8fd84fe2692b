/*
 * Reads an operator's services. Called by policies.c before policies are compiled and when they
 * are to be read again, and by tests. Must hold: every place is one that network.egress.allow
 * takes; a mistake is told with its file, its place and its field, and then there are no services
 * at all.
 */
#include "engine/policy/services.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/policy/egress.h"
#include "engine/policy/fields.h"
#include "engine/policy/yaml.h"

enum { PLACE_BYTES = GUARD_RULE_TEXT_MAX + 1, PORTS_BYTES = 96 };

/* What is spoken, and where it is unless ports are named. */
static const struct protocol {
	const char *name, *transport, *ports;
} protocols[] = {
	{ "https", "tcp", "443" }, { "http", "tcp", "80" },  { "ssh", "tcp", "22" },
	{ "git", "tcp", "9418" },  { "svn", "tcp", "3690" }, { "quic", "udp", "443" },
	{ "tls", "tls", "443" },   { "tcp", "tcp", NULL },   { "udp", "udp", NULL },
};

enum { PROTOCOLS = sizeof protocols / sizeof protocols[0] };

static const char *const fields[] = { "name", "protocol", "hosts", "addresses", "ports" };

enum { NAME, PROTOCOL, HOSTS, ADDRESSES, PORTS, FIELDS };

/* ---- one service ---- */

struct reading {
	const struct yaml_node *at[FIELDS]; /* NULL: not there */
	struct policy_mistake *mistake;
	struct service *service;
	char suffix[PORTS_BYTES + 8]; /* "tcp/443" */
};

static int fields_find(struct reading *reading, const struct yaml_node *map)
{
	if (map->kind != YAML_MAP)
		return yaml_mistake(reading->mistake, map,
				    "expected a service: name, protocol, hosts, addresses, ports");
	for (const struct yaml_node *key = map->first; key; key = key->next->next) {
		const char *nearest = policy_nearest(key->text, fields, FIELDS);
		uint32_t i = 0;

		while (i < FIELDS && strcmp(fields[i], key->text) != 0)
			i++;
		if (i == FIELDS && nearest)
			return yaml_mistake(reading->mistake, key,
					    "%.48s: unknown field; did you mean %s?", key->text,
					    nearest);
		if (i == FIELDS)
			return yaml_mistake(reading->mistake, key,
					    "%.48s: unknown field; one of name, protocol, hosts, "
					    "addresses, ports",
					    key->text);
		if ((key->next->kind == YAML_LIST) != (i >= HOSTS))
			return yaml_mistake(reading->mistake, key->next, "%s: expected %s",
					    fields[i], i >= HOSTS ? "a list" : "a word");
		reading->at[i] = key->next;
	}
	if (!reading->at[NAME] || !reading->at[PROTOCOL])
		return yaml_mistake(reading->mistake, map, "%s: expected, the service has none",
				    reading->at[NAME] ? "protocol" : "name");
	return 0;
}

static int ports_join(struct reading *reading, char *ret, size_t bytes)
{
	size_t used = 0;

	*ret = 0;
	if (!reading->at[PORTS])
		return 0;
	for (const struct yaml_node *at = reading->at[PORTS]->first; at; at = at->next) {
		if (at->kind != YAML_SCALAR || !*at->text ||
		    strspn(at->text, "0123456789-") != strlen(at->text))
			return yaml_mistake(reading->mistake, at,
					    "ports: expected a port, or two as 8000-8080");
		if (used + strlen(at->text) + 2 > bytes)
			return yaml_mistake(reading->mistake, at, "ports: too many");
		used += (size_t)snprintf(ret + used, bytes - used, "%s%s", used ? "," : "",
					 at->text);
	}
	return 0;
}

static int suffix_make(struct reading *reading)
{
	const struct yaml_node *at = reading->at[PROTOCOL];
	const struct protocol *protocol = NULL;
	char ports[PORTS_BYTES];
	int r = ports_join(reading, ports, sizeof ports);

	if (r < 0)
		return r;
	for (uint32_t i = 0; i < PROTOCOLS; i++)
		if (!strcmp(protocols[i].name, at->text))
			protocol = &protocols[i];
	if (!protocol)
		return yaml_mistake(reading->mistake, at,
				    "protocol: unknown; one of https, tls, http, ssh, git, svn, "
				    "quic, tcp, udp");
	if (!*ports && !protocol->ports)
		return yaml_mistake(reading->mistake, at, "ports: expected, %s alone has none",
				    protocol->name);
	(void)snprintf(reading->suffix, sizeof reading->suffix, "%s/%s", protocol->transport,
		       *ports ? ports : protocol->ports); /* fits */
	return 0;
}

static int place_add(struct reading *reading, const struct yaml_node *at, const char *field)
{
	struct service *service = reading->service;
	struct guard_destination unused;
	char text[PLACE_BYTES];
	const char *wrong;

	if (at->kind != YAML_SCALAR || strchr(at->text, ' '))
		return yaml_mistake(reading->mistake, at, "%s: expected one without ports", field);
	if (service->place_count == SERVICE_PLACES_MAX)
		return yaml_mistake(reading->mistake, at, "%s: more than 64 places", field);
	if (snprintf(text, sizeof text, "%s %s", at->text, reading->suffix) >= (int)sizeof text)
		return yaml_mistake(reading->mistake, at, "%s: too long", field);
	if (egress_is_name(text) != (field == fields[HOSTS]))
		return yaml_mistake(reading->mistake, at, "%s: expected %s", field,
				    field == fields[HOSTS] ? "a name, as mirror.example" :
							     "an address, as 192.0.2.0/24");
	wrong = egress_read(text, false, &unused);
	if (wrong)
		return yaml_mistake(reading->mistake, at, "%s: %s", field, wrong);
	service->places[service->place_count] = strdup(text);
	if (!service->places[service->place_count])
		return -ENOMEM;
	service->place_count++;
	return 0;
}

static void service_clear(struct service *service)
{
	for (uint32_t i = 0; i < service->place_count; i++)
		free(service->places[i]);
	*service = (struct service){ 0 };
}

static int service_read(const struct yaml_node *map, struct service *service,
			struct policy_mistake *mistake)
{
	struct reading reading = { .mistake = mistake, .service = service };
	int r = fields_find(&reading, map);

	if (r == 0 && !policy_name_is_good(reading.at[NAME]->text))
		r = yaml_mistake(mistake, reading.at[NAME],
				 "name: expected 1 to 63 of a-z 0-9 and - inside");
	if (r == 0)
		r = suffix_make(&reading);
	for (uint32_t field = HOSTS; field <= ADDRESSES && r == 0; field++)
		for (const struct yaml_node *at = reading.at[field] ? reading.at[field]->first :
								      NULL;
		     at && r == 0; at = at->next)
			r = place_add(&reading, at, fields[field]);
	if (r == 0 && !service->place_count)
		r = yaml_mistake(mistake, map, "hosts: expected, or addresses: it has neither");
	if (r == 0)
		(void)snprintf(service->name, sizeof service->name, "%s",
			       reading.at[NAME]->text); /* fits */
	return r;
}

/* ---- all of them ---- */

static int service_insert(struct services *services, struct service *service,
			  const struct yaml_node *at, struct policy_mistake *mistake)
{
	uint32_t place = 0;

	while (place < services->count && strcmp(services->list[place].name, service->name) < 0)
		place++;
	if (place < services->count && !strcmp(services->list[place].name, service->name))
		return yaml_mistake(mistake, at, "name: there is a service %s already",
				    service->name);
	if (services->count == SERVICES_MAX)
		return yaml_mistake(mistake, at, "name: more than 64 services");
	memmove(&services->list[place + 1], &services->list[place],
		(services->count - place) * sizeof services->list[0]);
	services->list[place] = *service;
	services->count++;
	return 0;
}

int services_add(struct services *services, const char *text, size_t bytes,
		 struct policy_mistake *mistake)
{
	struct yaml_text *yaml = NULL;
	const struct yaml_node *root;
	int r = yaml_read(text, bytes, &yaml, mistake);

	if (r < 0)
		return r;
	root = yaml_root(yaml);
	for (const struct yaml_node *at = root->kind == YAML_LIST ? root->first : root;
	     at && r == 0; at = root->kind == YAML_LIST ? at->next : NULL) {
		struct service service = { 0 };

		r = service_read(at, &service, mistake);
		if (r == 0)
			r = service_insert(services, &service, at, mistake);
		if (r < 0)
			service_clear(&service);
	}
	yaml_free(yaml);
	return r;
}

static int document_read(struct services *services, int folder_fd, const char *name,
			 char ret_why[SERVICES_WHY_BYTES])
{
	struct policy_mistake mistake = { 0 };
	auto_free char *text = malloc(SERVICE_BYTES_MAX + 1);
	auto_close int fd = openat(folder_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	ssize_t bytes;
	int r;

	if (!text)
		return -ENOMEM;
	r = fd < 0 || fstat(fd, &st) < 0 ? -errno : S_ISREG(st.st_mode) ? 0 : -EINVAL;
	bytes = r == 0 ? pread(fd, text, SERVICE_BYTES_MAX + 1, 0) : 0;
	if (bytes < 0)
		r = -errno;
	else if (bytes > SERVICE_BYTES_MAX)
		r = -E2BIG;
	if (r < 0) {
		(void)snprintf(ret_why, SERVICES_WHY_BYTES, "%s: %s", name,
			       r == -EINVAL ? "no regular file" :
			       r == -E2BIG  ? "more than 65,536 bytes" :
					      strerror(-r));
		return r;
	}
	r = services_add(services, text, (size_t)bytes, &mistake);
	if (r == -EBADMSG)
		(void)snprintf(ret_why, SERVICES_WHY_BYTES, "%s:%u:%u %s", name, mistake.line,
			       mistake.column, mistake.text);
	return r;
}

static int is_document(const struct dirent *entry)
{
	const size_t bytes = strlen(entry->d_name);

	return entry->d_name[0] != '.' && bytes > 5 && !strcmp(entry->d_name + bytes - 5, ".yaml");
}

int services_read(const char *folder, struct services **ret, char ret_why[SERVICES_WHY_BYTES])
{
	auto_close int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct services *services = calloc(1, sizeof *services);
	struct dirent **entries = NULL;
	int count = -1, r = services ? 0 : -ENOMEM;

	*ret_why = 0;
	if (r == 0 && fd >= 0)
		count = scandirat(fd, ".", &entries, is_document, alphasort);
	if (r == 0 && count < 0) {
		r = -errno;
		(void)snprintf(ret_why, SERVICES_WHY_BYTES, "%s", strerror(errno));
	}
	for (int i = 0; i < count; i++) {
		if (r == 0)
			r = document_read(services, fd, entries[i]->d_name, ret_why);
		free(entries[i]);
	}
	free(entries);
	if (r < 0) {
		services_free(services);
		return r;
	}
	*ret = services;
	return 0;
}

static void reading_free(struct services *services)
{
	for (uint32_t i = 0; i < services->count; i++)
		service_clear(&services->list[i]);
	free(services);
}

void services_free(struct services *services)
{
	while (services) {
		struct services *older = services->older;

		reading_free(services);
		services = older;
	}
}

bool services_are_same(const struct services *a, const struct services *b)
{
	bool same = a->count == b->count;

	for (uint32_t i = 0; same && i < a->count; i++) {
		const struct service *x = &a->list[i], *y = &b->list[i];

		same = !strcmp(x->name, y->name) && x->place_count == y->place_count;
		for (uint32_t k = 0; same && k < x->place_count; k++)
			same = !strcmp(x->places[k], y->places[k]);
	}
	return same;
}

void services_use(struct services *services)
{
	(void)__atomic_fetch_add(&services->users, 1, __ATOMIC_RELAXED);
}

void services_put(struct services *services)
{
	(void)__atomic_fetch_sub(&services->users, 1, __ATOMIC_RELEASE);
}

void services_sweep(struct services *services)
{
	struct services **at = &services->older;

	while (*at) {
		struct services *older = *at;

		if (__atomic_load_n(&older->users, __ATOMIC_ACQUIRE)) {
			at = &older->older;
			continue;
		}
		*at = older->older;
		reading_free(older);
	}
}

const struct service *services_find(const struct services *services, const char *name)
{
	for (uint32_t i = 0; services && i < services->count; i++)
		if (!strcmp(services->list[i].name, name))
			return &services->list[i];
	return NULL;
}

void services_names(const struct services *services, char *ret, size_t bytes)
{
	size_t used = 0;

	(void)snprintf(ret, bytes, "none: see dsecd --services"); /* cut is fine */
	for (uint32_t i = 0; services && i < services->count && used + 2 < bytes; i++)
		used += (size_t)snprintf(ret + used, bytes - used, "%s%s", i ? ", " : "",
					 services->list[i].name);
}
