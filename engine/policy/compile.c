/*
 * From a document to rules. Called by policies.c, on the control thread, and by tests. What a
 * document extends comes first: its lists are joined with the document's, its words replaced. Must
 * hold: rules come in the order of the documents, and the same documents make the same rules.
 */
#include "engine/policy/compile.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/policy/egress.h"
#include "engine/policy/ioctls.h"
#include "engine/policy/names.h"
#include "engine/policy/services.h"

enum { LABELS_MAX = 8, FAMILY_FIRST = 1 }; /* labels: of one entry */

/* ---- texts ---- */

static const char *text_keep(struct policy *policy, const char *text)
{
	size_t bytes = strlen(text) + 1;
	char *kept = policy->strings + policy->strings_used;

	assert(bytes <= policy->strings_room - policy->strings_used);
	memcpy(kept, text, bytes);
	policy->strings_used += bytes;
	return kept;
}

/* How many places an entry of network.egress may stand for. */
static uint32_t places_most(const struct policy_entry *entry)
{
	const bool is_egress = policy_field(entry->field)->kind == FIELD_IS_DESTINATIONS;

	return is_egress && entry->key ? SERVICE_PLACES_MAX : 1;
}

/* More than all its texts and labels take. */
static size_t strings_room(const struct policy_entry *entries, uint32_t count)
{
	const struct policy_words *families = &policy_field(FIELD_SOCKETS_FAMILIES)->words;
	size_t room = 4 * (GUARD_POLICY_NAME_MAX + 1);

	for (size_t i = 0; i < families->count; i++)
		room += strlen(families->words[i].name) + 64;
	for (uint32_t i = 0; i < count; i++) {
		size_t text = strlen(entries[i].text) + 1;
		const bool is_ioctls = policy_field(entries[i].field)->kind == FIELD_IS_IOCTLS;
		const size_t labels = is_ioctls ? IOCTL_RULES_MAX : LABELS_MAX;

		if (places_most(&entries[i]) > 1)
			room += SERVICE_PLACES_MAX * (GUARD_RULE_TEXT_MAX + 1) + 2 * 96;
		room += text + (entries[i].key ? strlen(entries[i].key) + 1 : 0);
		room += labels * (strlen(policy_field(entries[i].field)->path) + 8 + text);
	}
	return room;
}

/* ---- what it extends, and itself ---- */

/* A list that says what may be is a value as a whole: to join it would widen it. */
static bool is_replaced_whole(enum policy_field_id field)
{
	return field == FIELD_SOCKETS_FAMILIES || field == FIELD_IOCTLS_ALLOW;
}

static bool document_has(const struct policy_document *document, enum policy_field_id field)
{
	for (uint32_t i = 0; i < document->count; i++)
		if (document->entries[i].field == field)
			return true;
	return false;
}

/* What says the same thing of the same subject: the later one counts. */
static bool is_same_subject(const struct policy_entry *a, const struct policy_entry *b)
{
	if (a->field != b->field)
		return false;
	switch (policy_field(a->field)->kind) {
	case FIELD_IS_WORD:
	case FIELD_IS_COUNT:
	case FIELD_IS_SECONDS:
	case FIELD_IS_BYTES:
		return true;
	case FIELD_IS_PHASES:
		return !strcmp(a->key, b->key);
	default:
		return !strcmp(a->text, b->text) && !a->key == !b->key;
	}
}

static void entry_merge(struct policy_entry *entries, uint32_t *count,
			const struct policy_entry *entry)
{
	for (uint32_t i = 0; i < *count; i++)
		if (is_same_subject(&entries[i], entry)) {
			entries[i] = *entry;
			return;
		}
	entries[(*count)++] = *entry;
}

static int entries_merge(const struct policy_document *document, const struct policy *base,
			 struct policy *policy)
{
	uint32_t most = document->count + (base ? base->entry_count : 0);

	policy->entries = calloc(most + 1, sizeof policy->entries[0]);
	if (!policy->entries)
		return -ENOMEM;
	for (uint32_t i = 0; base && i < base->entry_count; i++)
		if (!is_replaced_whole(base->entries[i].field) ||
		    !document_has(document, base->entries[i].field))
			policy->entries[policy->entry_count++] = base->entries[i];
	for (uint32_t i = 0; i < document->count; i++)
		entry_merge(policy->entries, &policy->entry_count, &document->entries[i]);
	policy->strings_room = strings_room(policy->entries, policy->entry_count);
	policy->strings = malloc(policy->strings_room);
	if (!policy->strings)
		return -ENOMEM;
	for (uint32_t i = 0; i < policy->entry_count; i++) {
		struct policy_entry *entry = &policy->entries[i];

		entry->text = text_keep(policy, entry->text);
		if (entry->key)
			entry->key = text_keep(policy, entry->key);
	}
	return 0;
}

/* ---- rules ---- */

struct compiling {
	struct policy *policy;
	const struct services *services;
	struct policy_mistake *mistake;
	uint32_t enforce[POLICY_FIELDS]; /* by the field of enforce */
};

static enum policy_field_id enforce_of(enum guard_rule_kind kind)
{
	switch (kind) {
	case GUARD_RULE_FILE:
		return FIELD_ENFORCE_FILES;
	case GUARD_RULE_IOCTL:
		return FIELD_ENFORCE_IOCTLS;
	case GUARD_RULE_FAMILY:
	case GUARD_RULE_UNIX:
		return FIELD_ENFORCE_SOCKETS;
	default:
		return FIELD_ENFORCE_PROCESSES;
	}
}

static int rule_add(const struct compiling *compiling, const struct policy_entry *entry,
		    const char *subject, const struct guard_rule *rule)
{
	struct policy *policy = compiling->policy;
	const struct yaml_node at = { .line = entry->line, .column = entry->column };
	uint32_t enforce = compiling->enforce[enforce_of(rule->kind)];
	const char *field = policy_field(entry->field)->path;
	char label[GUARD_RULE_TEXT_MAX + 64];
	struct guard_rule *added;

	if (policy->guard.rule_count == GUARD_POLICY_RULES_MAX)
		return yaml_mistake(compiling->mistake, &at, "%s: more than 1,024 rules in all",
				    field);
	(void)snprintf(label, sizeof label, "%s %s", field, subject); /* as long as both may be */
	added = &policy->rules[policy->guard.rule_count++];
	*added = *rule;
	added->is_audit = enforce == ENFORCE_AUDIT;
	added->is_required = enforce == ENFORCE_REQUIRED;
	if (rule->kind >= GUARD_RULE_DESTINATION) {
		/* A way out that nobody watches is none. */
		added->is_audit = false;
		added->is_required = true;
	}
	added->label = text_keep(policy, label);
	return 0;
}

static uint32_t file_bits(enum policy_field_id field)
{
	switch (field) {
	case FIELD_FILES_PROTECT:
		return GUARD_FILE_WRITE | GUARD_FILE_REPLACE | GUARD_FILE_METADATA |
		       GUARD_FILE_SUBTREE;
	case FIELD_FILES_READONLY:
	case FIELD_FILES_VERIFY:
		return GUARD_FILE_WRITE | GUARD_FILE_REPLACE | GUARD_FILE_SUBTREE;
	case FIELD_FILES_HIDE:
		return GUARD_FILE_HIDE | GUARD_FILE_SUBTREE;
	default:
		return GUARD_FILE_EXECUTE | GUARD_FILE_SUBTREE;
	}
}

static int ioctls_add(const struct compiling *compiling, const struct policy_entry *entry)
{
	struct guard_rule all[IOCTL_RULES_MAX];
	const uint32_t count = ioctl_rules(compiling->policy, entry, all);
	int r = 0;

	for (uint32_t i = 0; i < count && r == 0; i++)
		r = rule_add(compiling, entry,
			     all[i].bits & GUARD_IOCTL_OTHERS ? "others" : entry->text, &all[i]);
	return r;
}

static int process_add(const struct compiling *compiling, const struct policy_entry *entry)
{
	struct guard_rule rule = { .kind = GUARD_RULE_PROCESS,
				   .value = policy_field(entry->field)->rule };

	if (entry->value == WORD_ALLOW)
		return 0;
	if (entry->field == FIELD_PTRACE && entry->value == WORD_INSIDE)
		rule.value = GUARD_PROCESS_PTRACE_OUTSIDE;
	return rule_add(compiling, entry, entry->text, &rule);
}

/* A list of what may be; rules are what may not: all others, once, where the list begins. */
static int families_add(const struct compiling *compiling, const struct policy_entry *first)
{
	const struct policy *policy = compiling->policy;
	const struct policy_words *words = &policy_field(FIELD_SOCKETS_FAMILIES)->words;
	int r = 0;

	for (const struct policy_entry *at = policy->entries; at < first; at++)
		if (at->field == FIELD_SOCKETS_FAMILIES)
			return 0;
	for (size_t i = 0; i < words->count && r == 0; i++) {
		const struct guard_rule rule = { .kind = GUARD_RULE_FAMILY,
						 .value = words->words[i].value };
		bool allowed = false;

		for (uint32_t k = 0; k < policy->entry_count; k++)
			allowed |= policy->entries[k].field == FIELD_SOCKETS_FAMILIES &&
				   policy->entries[k].value == rule.value;
		if (!allowed)
			r = rule_add(compiling, first, words->words[i].name, &rule);
	}
	return r;
}

/* The entry's first word. */
static const char *name_keep(struct policy *policy, const char *text)
{
	char word[GUARD_RULE_TEXT_MAX + 1];

	(void)snprintf(word, sizeof word, "%.*s", (int)strcspn(text, " "), text); /* as long */
	return text_keep(policy, word);
}

/* A place of a service, or an entry of its own: both are good, since they were read before. */
static int place_add(const struct compiling *compiling, const char *text, bool is_deny)
{
	struct policy *policy = compiling->policy;
	const bool is_name = egress_is_name(text);
	struct guard_name *name = &policy->names[policy->guard.name_count];
	struct guard_destination *to =
		is_name ? &name->to : &policy->destinations[policy->guard.destination_count];

	if (egress_read(text, is_deny, to))
		return -EINVAL;
	to->rule = policy->guard.rule_count;
	for (uint32_t i = 0; i < to->port_count; i++)
		to->ports[i].rule = (uint16_t)to->rule;
	if (is_name)
		name->text = name_keep(policy, text);
	policy->guard.name_count += is_name;
	policy->guard.destination_count += !is_name;
	return 0;
}

/* One rule of its names, one of its addresses: they are enforced each in its way. */
static int service_places_add(const struct compiling *compiling, const struct policy_entry *entry,
			      const struct service *service, bool is_name)
{
	const struct guard_rule rule = {
		.kind = is_name ? GUARD_RULE_NAME : GUARD_RULE_DESTINATION,
		.bits = GUARD_DESTINATION_ALLOW,
		.text = entry->text,
	};
	struct policy *policy = compiling->policy;
	char subject[SERVICE_NAME_MAX + 16];
	uint32_t at, added = 0;
	int r = 0;

	(void)snprintf(subject, sizeof subject, "service: %s", service->name); /* fits */
	for (uint32_t i = 0; i < service->place_count && r == 0; i++) {
		if (egress_is_name(service->places[i]) != is_name)
			continue;
		r = added++ ? 0 : rule_add(compiling, entry, subject, &rule);
		if (r == 0)
			r = place_add(compiling, service->places[i], false);
	}
	at = policy->guard.rule_count - 1;
	if (r == 0 && added)
		policy->anomalies.services[at / 64] |= 1ull << at % 64;
	return r;
}

static int service_add(const struct compiling *compiling, const struct policy_entry *entry)
{
	const struct service *service = services_find(compiling->services, entry->text);
	const struct yaml_node at = { .line = entry->line, .column = entry->column };
	char known[80];

	if (!service) {
		services_names(compiling->services, known, sizeof known);
		return yaml_mistake(compiling->mistake, &at,
				    "network.egress.allow: there is no service %s; there is %s",
				    entry->text, known);
	}
	compiling->policy->has_services = true;
	return service_places_add(compiling, entry, service, true) ?:
		       service_places_add(compiling, entry, service, false);
}

static int destination_add(const struct compiling *compiling, const struct policy_entry *entry)
{
	const bool is_deny = entry->field == FIELD_EGRESS_DENY;
	const struct guard_rule rule = {
		.kind = egress_is_name(entry->text) ? GUARD_RULE_NAME : GUARD_RULE_DESTINATION,
		.bits = is_deny ? GUARD_DESTINATION_DENY : GUARD_DESTINATION_ALLOW,
		.text = entry->text,
	};
	int r;

	if (entry->key)
		return service_add(compiling, entry);
	r = rule_add(compiling, entry, entry->text, &rule);
	return r < 0 ? r : place_add(compiling, entry->text, is_deny);
}

/* It stands where the entry does that is one too many. */
static int ranges_mistake(const struct compiling *compiling, uint32_t rule)
{
	const struct policy *policy = compiling->policy;
	struct yaml_node at = { .line = 1, .column = 1 };

	for (uint32_t i = 0; i < policy->entry_count; i++) {
		const struct policy_entry *entry = &policy->entries[i];

		if (policy_field(entry->field)->kind != FIELD_IS_DESTINATIONS ||
		    strcmp(entry->text, policy->rules[rule - 1].text) != 0)
			continue;
		at.line = entry->line;
		at.column = entry->column;
	}
	return yaml_mistake(compiling->mistake, &at,
			    "network.egress.allow: more than 8 ranges of ports hold for "
			    "%.48s; join them",
			    policy->rules[rule - 1].text);
}

static int destinations_fold(const struct compiling *compiling)
{
	struct policy *policy = compiling->policy;
	uint32_t rule = 0;
	int r = egress_fold(policy->destinations, policy->guard.destination_count, &rule);

	if (r < 0)
		return ranges_mistake(compiling, rule);
	policy->guard.destination_count = (uint32_t)r;
	r = names_fold(policy->names, policy->guard.name_count, &rule);
	if (r < 0)
		return ranges_mistake(compiling, rule);
	policy->guard.name_count = (uint32_t)r;
	return 0;
}

static int cap_add(const struct compiling *compiling, const struct policy_entry *entry)
{
	struct guard_caps *caps = &compiling->policy->guard.caps;
	const struct guard_rule rule = { .kind = GUARD_RULE_CAP,
					 .value = policy_field(entry->field)->rule };
	uint64_t *const at[] = {
		[GUARD_CAP_CONNECTIONS] = &caps->connections,
		[GUARD_CAP_BYTES] = &caps->bytes,
		[GUARD_CAP_CONNECTIONS_PER_S] = &caps->connections_per_s,
		[GUARD_CAP_BYTES_PER_S] = &caps->bytes_per_s,
	};

	*at[rule.value] = entry->value;
	return rule_add(compiling, entry, entry->text, &rule);
}

/* What limits nothing is a mistake of somebody who thinks that it does. */
static int caps_check(const struct compiling *compiling)
{
	const struct policy *policy = compiling->policy;

	for (uint32_t i = 0; !policy->guard.has_egress && i < policy->entry_count; i++) {
		const struct policy_entry *entry = &policy->entries[i];
		const struct yaml_node at = { .line = entry->line, .column = entry->column };

		if (entry->field >= FIELD_CAP_CONNECTIONS && entry->field <= FIELD_CAP_BYTES_PER_S)
			return yaml_mistake(compiling->mistake, &at,
					    "%s: there is no way out that it could limit",
					    policy_field(entry->field)->path);
	}
	return 0;
}

static int phase_add(const struct compiling *compiling, const struct policy_entry *entry)
{
	struct policy *policy = compiling->policy;
	const struct yaml_node at = { .line = entry->line, .column = entry->column };

	if (policy->phase_count == POLICY_PHASES_MAX)
		return yaml_mistake(compiling->mistake, &at, "phases: more than 16");
	policy->phases[policy->phase_count++] = (struct policy_phase){ entry->key, entry->text };
	return 0;
}

static int path_add(const struct compiling *compiling, const struct policy_entry *entry,
		    const struct guard_rule *rule)
{
	struct policy *policy = compiling->policy;
	const uint32_t at = policy->guard.rule_count;
	int r = rule_add(compiling, entry, entry->text, rule);

	if (r == 0 && entry->field == FIELD_FILES_VERIFY)
		policy->anomalies.judged[at / 64] |= 1ull << at % 64;
	return r;
}

static void anomaly_tune(struct policy *policy, const struct policy_entry *entry)
{
	const uint32_t at = entry->field - FIELD_ANOMALIES;
	struct anomaly_rule *rule = &policy->anomalies.rules[at / ANOMALY_FIELDS];

	switch (at % ANOMALY_FIELDS) {
	case ANOMALY_LIMIT:
		rule->limit = (uint32_t)entry->value;
		break;
	case ANOMALY_WINDOW:
		rule->window_s = (uint32_t)entry->value;
		break;
	default:
		rule->severity = (enum anomaly_severity)entry->value;
	}
}

static int entry_compile(const struct compiling *compiling, const struct policy_entry *entry)
{
	struct guard_rule rule = { .kind = GUARD_RULE_FILE, .text = entry->text };

	switch (policy_field(entry->field)->kind) {
	case FIELD_IS_PATHS:
		rule.bits = file_bits(entry->field);
		return path_add(compiling, entry, &rule);
	case FIELD_IS_SOCKETS:
		rule.kind = GUARD_RULE_UNIX;
		return rule_add(compiling, entry, entry->text, &rule);
	case FIELD_IS_IOCTLS:
		return ioctls_add(compiling, entry);
	case FIELD_IS_FAMILIES:
		return families_add(compiling, entry);
	case FIELD_IS_DESTINATIONS:
		return destination_add(compiling, entry);
	case FIELD_IS_PHASES:
		return phase_add(compiling, entry);
	case FIELD_IS_BYTES:
		return cap_add(compiling, entry);
	case FIELD_IS_COUNT:
		if (policy_field(entry->field)->rule)
			return cap_add(compiling, entry);
		anomaly_tune(compiling->policy, entry);
		return 0;
	case FIELD_IS_SECONDS:
		anomaly_tune(compiling->policy, entry);
		return 0;
	default:
		if (entry->field >= FIELD_ANOMALIES && entry->field < FIELD_ANOMALIES_END)
			anomaly_tune(compiling->policy, entry);
		if (entry->field == FIELD_NETWORK_MODE)
			compiling->policy->network = (enum policy_network)entry->value;
		return policy_field(entry->field)->rule ? process_add(compiling, entry) : 0;
	}
}

static int entries_compile(struct policy *policy, const struct services *services,
			   struct policy_mistake *mistake)
{
	struct compiling compiling = { .policy = policy, .services = services, .mistake = mistake };
	int r = 0;

	for (uint32_t i = 0; i < policy->entry_count; i++)
		compiling.enforce[policy->entries[i].field] = (uint32_t)policy->entries[i].value;
	for (uint32_t i = 0; i < policy->entry_count && r == 0; i++)
		r = entry_compile(&compiling, &policy->entries[i]);
	if (r == 0)
		r = destinations_fold(&compiling);
	policy->guard.has_egress = policy->guard.destination_count || policy->guard.name_count;
	if (r == 0)
		r = caps_check(&compiling);
	return r;
}

/* What rules are compiled into. */
static int tables_make(struct policy *policy)
{
	uint32_t most = 1;

	for (uint32_t i = 0; i < policy->entry_count; i++)
		most += places_most(&policy->entries[i]);
	policy->levels = calloc(GUARD_POLICY_RULES_MAX, sizeof policy->levels[0]);
	policy->destinations = calloc(most, sizeof policy->destinations[0]);
	policy->names = calloc(most, sizeof policy->names[0]);
	return policy->levels && policy->destinations && policy->names ? 0 : -ENOMEM;
}

int policy_compile(const struct policy_document *document, const struct policy *base,
		   const struct services *services, struct policy **ret,
		   struct policy_mistake *mistake)
{
	const struct yaml_node at = { .line = document->extends_line,
				      .column = document->extends_column };
	struct policy *policy = calloc(1, sizeof *policy);
	int r = policy ? 0 : -ENOMEM;

	if (r == 0) {
		policy->network = POLICY_NETWORK_ANY;
		policy->anomalies = anomaly_defaults;
		policy->depth = base ? base->depth + 1 : 0;
		policy->rules = calloc(GUARD_POLICY_RULES_MAX, sizeof policy->rules[0]);
		r = policy->rules ? entries_merge(document, base, policy) : -ENOMEM;
	}
	if (r == 0)
		r = tables_make(policy);
	if (r == 0 && policy->depth > POLICY_EXTENDS_MAX)
		r = yaml_mistake(mistake, &at, "extends: more than 4, one behind the other");
	if (r == 0)
		r = entries_compile(policy, services, mistake);
	if (r < 0) {
		policy_free(policy);
		return r;
	}
	(void)snprintf(policy->guard.name, sizeof policy->guard.name, "%s", document->name);
	policy->extends = document->extends ? text_keep(policy, document->extends) : NULL;
	policy->guard.rules = policy->rules;
	policy->guard.destinations = policy->destinations;
	policy->guard.names = policy->names;
	*ret = policy;
	return 0;
}

void policy_free(struct policy *policy)
{
	if (!policy)
		return;
	free(policy->rules);
	free(policy->destinations);
	free(policy->names);
	free(policy->levels);
	free(policy->entries);
	free(policy->strings);
	free(policy->document);
	free(policy);
}

bool policy_leads_out(const struct policy *policy)
{
	for (uint32_t i = 0; i < policy->guard.rule_count; i++)
		if ((policy->rules[i].kind == GUARD_RULE_DESTINATION ||
		     policy->rules[i].kind == GUARD_RULE_NAME) &&
		    policy->levels[i])
			return true;
	return false;
}

uint32_t policy_unenforced(const struct policy *policy, const uint64_t *absent)
{
	uint32_t count = policy->unenforced;

	for (uint32_t i = 0; i < policy->guard.rule_count; i++)
		count += policy->levels[i] == GUARD_LEVEL_MOUNT && (absent[i / 64] >> i % 64 & 1);
	return count;
}
