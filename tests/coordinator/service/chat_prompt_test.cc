#include "coordinator/service/request/chat_prompt.h"

#include <gtest/gtest.h>

#include "common/status.h"

namespace strata {
namespace {

std::unique_ptr<ChatTemplate> Template(const std::string& source) {
  auto parsed = ParseChatTemplate(source);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return *std::move(parsed);
}

v1::ChatMessage Message(const std::string& role, const std::string& content) {
  v1::ChatMessage message;
  message.set_role(role);
  message.set_content(content);
  return message;
}

std::string Rendered(const std::string& source, const v1::ChatInput& chat) {
  const auto chat_template = Template(source);
  const auto rendered =
      RenderChatPrompt(*chat_template, {{}, WantsArgumentsAsText(*chat_template)}, chat, 0);
  return rendered.ok() ? *rendered : "refused: " + std::string(rendered.status().message());
}

constexpr char kStrict[] =
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('System first.') }}{% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}";

TEST(ChatPrompt, SeveralOrLateSystemMessagesAreOneWhereTheTemplateRefusesThem) {
  v1::ChatInput chat;
  *chat.add_messages() = Message("system", "A.");
  *chat.add_messages() = Message("user", "Q");
  *chat.add_messages() = Message("system", "B.");
  EXPECT_EQ(Rendered(kStrict, chat), "[system]A.\n\nB.[user]Q[assistant]");
  // And are left where they are otherwise.
  EXPECT_EQ(Rendered("{% for m in messages %}[{{ m.role }}]{% endfor %}", chat),
            "[system][user][system]");
  EXPECT_EQ(Rendered("{{ raise_exception('Never.') }}", chat), "refused: Never.");
}

TEST(ChatPrompt, AMissingContentIsEmptyWhereTheTemplateNeedsOne) {
  v1::ChatInput chat;
  *chat.add_messages() = Message("user", "Q");
  v1::ChatMessage* calls = chat.add_messages();
  calls->set_role("assistant");
  calls->set_without_content(true);
  calls->add_tool_calls()->set_name("f");
  EXPECT_EQ(Rendered("{% for m in messages %}{{ m.content + '|' }}{% endfor %}", chat), "Q||");
  EXPECT_EQ(Rendered("{% for m in messages %}{{ 'content' in m }} {% endfor %}", chat),
            "True False ");
}

TEST(ChatPrompt, ArgumentsAreObjectsUnlessTheTemplateWantsText) {
  v1::ChatInput chat;
  *chat.add_messages() = Message("user", "Q");
  v1::ChatMessage* calls = chat.add_messages();
  calls->set_role("assistant");
  calls->set_content("");
  v1::ToolCall* call = calls->add_tool_calls();
  call->set_id("c1");
  call->set_name("f");
  call->set_arguments("{\"z\": 1, \"a\": \"x\"}");
  const std::string each = "{% for m in messages %}{% for c in m.tool_calls or [] %}";
  const std::string end = "{% endfor %}{% endfor %}";
  EXPECT_EQ(Rendered(each +
                         "{{ c.id }} {{ c.type }} {{ c.function.name }} "
                         "{{ c.function.arguments | tojson }}" +
                         end,
                     chat),
            "c1 function f {\"z\": 1, \"a\": \"x\"}");
  EXPECT_EQ(Rendered(each + "{{ '<' + c.function.arguments + '>' }}" + end, chat),
            "<{\"z\": 1, \"a\": \"x\"}>");
  EXPECT_EQ(Rendered(each +
                         "{% for k, v in c.function.arguments | items %}<{{ k }}>{{ v }}"
                         "{% endfor %}" +
                         end,
                     chat),
            "<z>1<a>x");
}

TEST(ChatPrompt, ArgumentsThatAreTooDeepAreShownAsText) {
  const std::string deep = "{\"a\":" + std::string(1000000, '[') + std::string(1000000, ']') + "}";
  v1::ChatInput chat;
  v1::ChatMessage* message = chat.add_messages();
  message->set_role("assistant");
  v1::ToolCall* call = message->add_tool_calls();
  call->set_name("f");
  call->set_arguments(deep);
  const auto chat_template =
      Template("{{ messages[0].tool_calls[0].function.arguments is string }}");
  const auto prompt = RenderChatPrompt(*chat_template, {}, chat, 0);
  ASSERT_TRUE(prompt.ok()) << prompt.status();
  EXPECT_EQ(*prompt, "True");
  // Tools are refused.
  chat.add_tools(deep);
  const auto refused = RenderChatPrompt(*chat_template, {}, chat, 0);
  EXPECT_EQ(DetailOf(refused.status()).reason(), "BAD_JSON");
}

TEST(ChatPrompt, ToolsAreShownInTheOrderOfTheirKeysUnlessNoneMayBeCalled) {
  v1::ChatInput chat;
  *chat.add_messages() = Message("user", "Q");
  chat.add_tools(R"({"type": "function", "function": {"name": "f", "a": 1}})");
  const std::string source = "{{ tools | tojson if tools else 'no tools' }}";
  EXPECT_EQ(Rendered(source, chat), R"([{"type": "function", "function": {"name": "f", "a": 1}}])");
  chat.set_tool_choice("none");
  EXPECT_EQ(Rendered(source, chat), "no tools");
}

TEST(ChatPrompt, TemplatesGetTheRequestsVariables) {
  v1::ChatInput chat;
  *chat.add_messages() = Message("user", "Q");
  chat.set_template_arguments(R"({"enable_thinking": false})");
  EXPECT_EQ(Rendered("{{ enable_thinking }} {{ add_generation_prompt }}", chat), "False True");
  chat.set_template_arguments("[1]");
  EXPECT_EQ(Rendered("", chat), "refused: chat_template_kwargs must be an object");
}

TEST(ChatPrompt, TheAnswerGoesOnWithTheLastMessage) {
  v1::ChatInput chat;
  *chat.add_messages() = Message("user", "Q");
  *chat.add_messages() = Message("assistant", "It is ");
  chat.set_continue_final_message(true);
  EXPECT_EQ(Rendered(kStrict, chat), "[user]Q[assistant]It is ");
  EXPECT_EQ(Rendered("{% for m in messages %}{{ m.content | trim }}<end>{% endfor %}", chat),
            "Q<end>It is");
  EXPECT_EQ(Rendered("{{ messages[0].content }}", chat).substr(0, 42),
            "refused: continue_final_message is not sup");
}

}  // namespace
}  // namespace strata
