/* What is remembered of sandboxes that are gone. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "engine/sandbox/ended.h"

static struct ended_list *list_of(uint64_t count)
{
	struct ended_list *list = calloc(1, sizeof *list);

	cr_assert(list);
	for (uint64_t i = 1; i <= count; i++)
		ended_add(list, &(struct ended){ .id = { 7, i }, .at_ns = i, .cause = i % 5 });
	return list;
}

Test(ended, one_is_found_by_the_whole_of_its_id)
{
	struct ended_list *list = list_of(10);
	const struct ended *ended = ended_find(list, (struct dsec_wire_id){ 7, 4 });

	cr_assert(ended);
	cr_expect_eq(ended->at_ns, 4);
	cr_expect_null(ended_find(list, (struct dsec_wire_id){ 8, 4 }));
	cr_expect_null(ended_find(list, (struct dsec_wire_id){ 7, 11 }));
	free(list);
}

Test(ended, no_id_is_nobodys)
{
	struct ended_list *list = list_of(1);

	cr_expect_null(ended_find(list, (struct dsec_wire_id){ 0, 0 }));
	free(list);
}

Test(ended, the_oldest_is_forgotten_first)
{
	struct ended_list *list = list_of(ENDED_MAX + 3);

	cr_expect_null(ended_find(list, (struct dsec_wire_id){ 7, 3 }));
	cr_expect(ended_find(list, (struct dsec_wire_id){ 7, 4 }));
	cr_expect(ended_find(list, (struct dsec_wire_id){ 7, ENDED_MAX + 3 }));
	free(list);
}
