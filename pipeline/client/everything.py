"""All that the client offers, in one place."""

from pipeline.client import schema
from pipeline.client.choices import (
    BatchingType,
    CompressionType,
    ConsumerBatchReceivePolicy,
    ConsumerDeadLetterPolicy,
    ConsumerKeySharedPolicy,
    ConsumerType,
    InitialPosition,
    KeySharedMode,
    ProducerAccessMode,
    RegexSubscriptionMode,
)
from pipeline.client.client import Client
from pipeline.client.create import create_all
from pipeline.client.deliveries import Deliveries, Delivery
from pipeline.client.exceptions import (
    AlreadyClosed,
    ClientError,
    ConnectError,
    ConsumerBusy,
    CumulativeAcknowledgementNotAllowedError,
    InvalidConfiguration,
    InvalidMessage,
    InvalidTopicName,
    InvalidUrl,
    MemoryBufferIsFull,
    OperationNotSupported,
    ProducerBusy,
    ProducerQueueIsFull,
    PulsarException,
    Result,
    SubscriptionNotFound,
    Timeout,
    TopicNotFound,
)
from pipeline.client.inbox import Message as OutgoingMessage
from pipeline.client.inbox import send
from pipeline.client.message import Message
from pipeline.client.messageid import MessageId
from pipeline.client.pending import Backlog, Pending, pending
from pipeline.client.producer import Producer
from pipeline.client.subscriptions import Subscription, subscribe, subscriptions
from state import DelaylineError

__all__ = [
    "AlreadyClosed",
    "Backlog",
    "BatchingType",
    "Client",
    "ClientError",
    "CompressionType",
    "ConnectError",
    "ConsumerBatchReceivePolicy",
    "ConsumerBusy",
    "ConsumerDeadLetterPolicy",
    "ConsumerKeySharedPolicy",
    "ConsumerType",
    "CumulativeAcknowledgementNotAllowedError",
    "DelaylineError",
    "Deliveries",
    "Delivery",
    "InitialPosition",
    "InvalidConfiguration",
    "InvalidMessage",
    "InvalidTopicName",
    "InvalidUrl",
    "KeySharedMode",
    "MemoryBufferIsFull",
    "Message",
    "MessageId",
    "OperationNotSupported",
    "OutgoingMessage",
    "Pending",
    "Producer",
    "ProducerAccessMode",
    "ProducerBusy",
    "ProducerQueueIsFull",
    "PulsarException",
    "RegexSubscriptionMode",
    "Result",
    "Subscription",
    "SubscriptionNotFound",
    "Timeout",
    "TopicNotFound",
    "create_all",
    "pending",
    "schema",
    "send",
    "subscribe",
    "subscriptions",
]
