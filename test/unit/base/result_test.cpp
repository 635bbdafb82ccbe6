#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace pgmqtt::base {
namespace {

TEST(Result, value) {
    Result<int, std::string> result = 7;
    ASSERT_TRUE(result.ok());
    EXPECT_TRUE(result);
    EXPECT_EQ(*result, 7);
}

TEST(Result, error) {
    Result<int, std::string> result = fail(std::string("no"));
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error(), "no");
}

TEST(Result, same_type_for_both) {
    Result<std::string, std::string> good = std::string("x");
    Result<std::string, std::string> bad = fail(std::string("x"));
    EXPECT_TRUE(good.ok());
    EXPECT_FALSE(bad.ok());
}

TEST(Result, moves_only) {
    Result<std::unique_ptr<int>, int> result = std::make_unique<int>(3);
    std::unique_ptr<int> taken = std::move(*result);
    EXPECT_EQ(*taken, 3);
}

TEST(Result, status) {
    Status<int> done = Done{};
    Status<int> failed = fail(4);
    EXPECT_TRUE(done.ok());
    EXPECT_EQ(failed.error(), 4);
}

}  // namespace
}  // namespace pgmqtt::base
