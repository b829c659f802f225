"""A LangChain runnable as an agent: `accord serve examples/agents/langchain_agent.py:translator`.

The model is a stand-in that needs no endpoint; put `ChatOpenAI(...)` or any other in its place, and its tokens are
streamed, its conversations remembered and what it uses is counted.
"""

from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder

prompt = ChatPromptTemplate.from_messages(
    [
        ("system", "You translate into Italian."),
        MessagesPlaceholder("history", optional=True),  # what was said before in the same context
        ("human", "{text}"),  # the only other place: the message's text
    ]
)

model = GenericFakeChatModel(messages=(AIMessage("buon giorno a tutti") for _ in iter(int, 1)))

translator = (prompt | model | StrOutputParser()).with_config(run_name="translator")
