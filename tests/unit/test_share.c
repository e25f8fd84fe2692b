/* Execs of each client: none can hold them all. */
#include <criterion/criterion.h>

#include "engine/tenant/share.h"

Test(share, a_client_gets_its_share_and_others_theirs)
{
	struct shares shares;

	cr_assert_eq(shares_init(&shares, 8, 3), 0);
	for (int i = 0; i < 3; i++)
		cr_expect(share_take(&shares, 11));
	cr_expect_not(share_take(&shares, 11));
	cr_expect(share_take(&shares, 22));
	share_give(&shares, 11);
	cr_expect(share_take(&shares, 11));
	shares_done(&shares);
}

Test(share, clients_that_come_and_go_leave_nothing)
{
	struct shares shares;

	cr_assert_eq(shares_init(&shares, 4, 2), 0);
	for (uint64_t client = 0; client < 1000; client++) {
		cr_expect(share_take(&shares, client));
		cr_expect(share_take(&shares, client + 1000));
		share_give(&shares, client);
		share_give(&shares, client + 1000);
	}
	cr_expect_eq(shares.count, 0);
	shares_done(&shares);
}
