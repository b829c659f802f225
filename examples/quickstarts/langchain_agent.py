"""A chain as an agent. Its model is a stand-in that needs no key: put yours in its place."""

from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate

prompt = ChatPromptTemplate.from_messages([("system", "You translate into Italian."), ("human", "{text}")])
model = FakeListChatModel(responses=["buon giorno a tutti"])

translator = (prompt | model | StrOutputParser()).with_config(run_name="translator")
